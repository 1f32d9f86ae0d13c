"""The fast ways of a CPU lane: prefill and decode step in C over one description of a model, and products in C for models that it refuses.

In: a loaded model. Out: the same model, faster, and a decoder. May import: the vocabulary, `cache`, `decode`, `models`, `parts`. Imports torch,
but for `build`.
"""
