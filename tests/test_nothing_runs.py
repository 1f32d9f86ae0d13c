"""Nothing that a model, a checkpoint, a file or a visitor brings is executed: what could do that stands nowhere in our code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from inference.host.child import ROOT

RUNS = {"eval", "exec", "compile", "__import__"}  # the built-in ones; re.compile is another name
READS_OBJECTS = {"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "code", "runpy"}
SHELLS = {"os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"}


def ours() -> list[Path]:
    return [ROOT / "app.py", *sorted((ROOT / "inference").rglob("*.py")), *sorted((ROOT / "ui").rglob("*.py"))]


def dotted(node: ast.expr) -> str:
    return f"{dotted(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def given(call: ast.Call, name: str) -> object:
    """What a call gives for a keyword that is a constant; None where it gives none."""
    return next((each.value.value for each in call.keywords if each.arg == name and isinstance(each.value, ast.Constant)), None)


def faults(tree: ast.AST) -> Iterator[str]:
    """Each way in a module by which what was brought along could run."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            yield from (f"import {name}" for name in names if name.split(".")[0] in READS_OBJECTS)
        if not isinstance(node, ast.Call):
            continue
        called = dotted(node.func)
        if called in RUNS | SHELLS or given(node, "shell") is True:
            yield called
        if called.endswith("torch.load") and given(node, "weights_only") is not True:
            yield "torch.load of more than tensors"
        if called.endswith((".load", "np.load")) and given(node, "allow_pickle"):
            yield "numpy's pickles"
        if called.startswith("yaml.") and called != "yaml.safe_load":
            yield called
        if called.endswith("from_pretrained") and called.startswith("Auto") and given(node, "trust_remote_code") is not False:
            yield f"{called} without trust_remote_code=False"
        if called.endswith("Environment") and "loader" in {each.arg for each in node.keywords} and given(node, "autoescape") is not True:
            yield "a template that escapes nothing"
        if any(each.arg == "trust_remote_code" and given(node, "trust_remote_code") is not False for each in node.keywords):
            yield "trust_remote_code"


@pytest.mark.parametrize("path", ours(), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_module_of_ours_runs_what_was_brought_along(path):
    assert list(faults(ast.parse(path.read_text("utf-8")))) == []


@pytest.mark.parametrize(
    "code",
    [
        "eval(text)", "import pickle", "from pickle import loads", "torch.load(path)", "torch.load(path, weights_only=False)", "yaml.load(text)", "os.system(text)",
        "subprocess.run(text, shell=True)", "AutoModel.from_pretrained(name)", "AutoConfig.from_pretrained(name, trust_remote_code=True)",
        "build(name, trust_remote_code=settings.trust)", "np.load(path, allow_pickle=True)", "Environment(loader=x)",
    ],
)  # fmt: skip
def test_each_such_way_is_seen(code):
    assert list(faults(ast.parse(code)))
