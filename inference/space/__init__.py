"""A Hugging Face Space: this folder made into one, and the lane that runs in the page's own process on ZeroGPU, the one place where that imports torch.

In: what was asked for (a name, hardware, a model), this folder; settings. Out: files, calls by huggingface_hub, sentences; a lane as the engine
knows them. May import: the vocabulary, cache, sources, engine, record, models, cuda, lane. No Gradio.
"""
