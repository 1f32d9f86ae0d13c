"""A name -> a checkpoint on disk -> a model on a device: the Hub, folders, the default model, shapes, and the cache of all of it.

In: MODEL_ID, a lane. Out: a folder, a loaded model and what it is. May import: the vocabulary. Imports torch where it reads weights.
"""
