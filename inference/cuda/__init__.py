"""The captured path of a 4-bit model on a CUDA device: kernels of our own in one CUDA graph per step.

`decoder.py` decodes, `step.py` runs one step, `parts.py` reads a loaded model, `device_code.py` compiles and launches the
kernels (`*.cu`). Nothing in the model is changed, so the eager path can answer meanwhile. In: a loaded model. Out: ids.
May import: the vocabulary, `decode`, `models`. Imports torch.
"""
