"""A Hugging Face Space: deploying one, and the lane that runs in the page's own process on ZeroGPU, the one place where that imports torch.

In: settings. Out: a Space; a lane as the engine knows them. May import: `engine`, `record`; the ZeroGPU lane what a lane's process may.
"""
