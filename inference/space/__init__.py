"""The Space that this folder becomes: what it needs of the folder, what it is made of on the Hub, and whether it runs and answers there.

In: what was asked for (a name, hardware, a model), this folder. Out: files, calls by huggingface_hub, sentences. May import: the vocabulary and
`sources` (why the Hub does not answer). Gradio is no part of it.
"""
