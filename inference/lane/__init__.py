"""What a lane's process runs: the pipe's end, loading, answering, scoring, and what this machine can do.

In: requests, one JSON object a line. Out: events. May import: the vocabulary, `cache`, `sources`, `decode`, `models`, `parts`, `cpu`,
`cuda`. Imports torch.
"""
