"""A GGUF file -> a checkpoint with safetensors, made once.

In: the file. Out: a folder in our cache, as transformers would have saved the model, and a note of what its weights were. May import: the
vocabulary, cache. Knows of no names and no network: `sources` does. Imports torch only in the process that fetches, inside functions.
"""
