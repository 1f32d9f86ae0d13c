"""What `ui/private.py` relies on in Gradio, and that the page does without where a version has it no more."""

from __future__ import annotations

import inspect
import subprocess
import sys

import gradio as gr
import pytest
from gradio import component_meta, queueing

from inference.child import ROOT
from ui import private


def test_gradio_s_queue_sleeps_as_long_as_it_is_told():
    with gr.Blocks() as demo:
        gr.Markdown("x")
    demo.queue()
    assert all(getattr(demo._queue, name) < value for name, value in private.QUEUE_SLEEPS.items()), "set by Gradio, and shorter"
    private.calm(demo)
    source = inspect.getsource(queueing)
    for name, value in private.QUEUE_SLEEPS.items():
        assert getattr(demo._queue, name) == value and f"sleep(self.{name})" in source


def test_a_gradio_without_them_is_told_in_the_log_and_nothing_else(caplog):
    private.calm(object())
    assert caplog.text.count("this Gradio has no") == len(private.QUEUE_SLEEPS)


def test_a_component_without_a_source_file_gets_no_stub(monkeypatch):
    def no_file(_):
        raise OSError

    monkeypatch.setattr(inspect, "getfile", no_file)
    assert component_meta.create_or_modify_pyi(gr.Textbox, "Textbox", []) is None


def test_gradio_comes_without_stubs_and_inspect_is_itself_again():
    code = (
        "import inspect, sys; own = inspect.getfile; from pathlib import Path\n"
        "asked = []; real = Path.read_text\n"
        "Path.read_text = lambda self, *a, **k: (asked.append(self), real(self, *a, **k))[1]\n"
        "import ui; assert inspect.getfile is own and 'gradio' in sys.modules\n"
        "print(sum(path.suffix in ('.py', '.pyi') and 'components' in path.parts for path in asked))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "0", done.stdout + done.stderr


def test_the_page_is_imported_after_gradio_too():
    assert "gradio" in sys.modules
    private.import_gradio()
    with pytest.raises(TypeError):
        inspect.getfile(gr.Textbox())
    assert inspect.getfile(gr.Textbox).endswith("textbox.py")
