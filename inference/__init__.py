"""Two lanes answer one prompt, and every figure about them is measured.

The page's process imports only the modules that need no torch (settings, events, timing, engine, report); the
others run inside a lane process, which `engine.py` starts.
"""

from inference.errors import InferenceError

__all__ = ["InferenceError"]
