"""The fast ways of a CPU lane: products and whole layers in C, and a compiled decode step.

In: a loaded model. Out: the same model, faster, and a decoder. May import: the vocabulary, `decode`, `models`. Imports torch.
"""
