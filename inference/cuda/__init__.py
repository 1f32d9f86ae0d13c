"""The captured path of a model on a CUDA device, its weights in 4 bits or in bfloat16: kernels of our own in one CUDA graph per step.

`decoder.py` decodes; `runner.py` puts together what runs a description (`packed.py`: its weights; `memory.py`, `room.py`: the cache and its
size; `step.py`: up to 32 rows; `prefill.py`: more); `kernels.py` and `device_code.py` compile and launch the kernels (`*.cu`). Nothing in the
model is changed, so the eager path can answer meanwhile. In: a loaded model. Out: ids. May import: the vocabulary, `decode`, `models`, `parts`.
Imports torch.
"""
