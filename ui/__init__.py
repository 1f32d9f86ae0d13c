"""The page: layout, wiring and words. Imports gradio, here for the first time, and `inference`'s torch-free modules; never torch."""

from ui.private import import_gradio

import_gradio()
