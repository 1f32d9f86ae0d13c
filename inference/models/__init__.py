"""A checkpoint on disk -> a model on a device, and what it really is: whether it fits, its storage, its 4-bit copy.

In: a folder, a lane. Out: a loaded model and facts read off it. May import: the vocabulary, cache, sources. Imports torch.
"""
