"""The answers token by token: how far 4 bits moved each token of the full-precision answer.

In: a finished comparison. Out: HTML and its listeners. May import comparison and history.
"""
