"""How far 4 bits moved the model: the lanes score the same ids, and the figures, forks and flips come of it.

In: an engine, ids or prompts. Out: the record's `quality`. May import: the vocabulary, `engine`, `record`, `series`. No torch.
"""
