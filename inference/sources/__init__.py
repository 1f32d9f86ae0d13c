"""A name -> a folder with a whole checkpoint: the Hub, folders, adapters, GGUF files, the default model, shapes.

In: MODEL_ID, settings. Out: a checkpoint on disk, what it came from, or the sentence why not. May import: the vocabulary, cache, gguf.
Imports torch only in the process that fetches (`fetch.py`), inside the functions that restore, merge or write.
"""
