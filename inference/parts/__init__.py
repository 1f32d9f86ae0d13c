"""One description of a decoder-only model for every fast path: what its layers are, in which order, with which numbers.

In: a transformers model, or its skeleton without weights. Out: `ModelParts`, or NotUnderstood with the reason; what plain decoding is held
to. May import: the vocabulary, `models`, `decode`. Knows no device and no kernel: `cpu` and `cuda` take from it what theirs need.
"""
