"""Many clients at once: what each sees of a lane, waits included, and at how many of them a limit breaks.

In: settings, a plan. Out: tables and one JSON object. May import: the vocabulary, `engine`, `record`. No torch.
"""
