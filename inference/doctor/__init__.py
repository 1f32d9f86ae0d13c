"""What this machine can run, and what a model would be on it before it is loaded: a command's process of its own.

In: settings, a model's name. Out: lines, and whether all is well. May import: the vocabulary, cache, gguf, sources, models, parts, cpu, cuda, lane, endpoint, space.
"""
