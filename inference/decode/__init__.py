"""The algorithm in one place: what a decoder promises, the plain (eager) one, and how the next id is chosen from logits.

In: a model, prompt ids. Out: ids. May import: the vocabulary, `models`. The faster decoders (`cpu`, `cuda`) keep the same promise.
"""
