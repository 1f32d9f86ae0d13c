"""The rooms of `inference/`: who may import whom, no circles, and torch only where a lane's process works."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from inference.host.child import ROOT

# A module at the top of inference/, or in host/, is vocabulary: everybody may import it, and it imports nothing but vocabulary.
VOCABULARY = "host"
MAY_IMPORT: dict[str, set[str]] = {
    "record": set(),
    "decide": {"record", "series"},
    "engine": {"record"},
    "series": {"engine", "record"},
    "report": {"record", "decide", "series"},
    "quality": {"engine", "record", "series"},
    "cache": set(),
    "gguf": {"cache"},
    "sources": {"cache", "gguf"},
    "models": {"cache", "sources"},
    "decode": {"models"},
    "parts": {"models", "decode"},
    "cpu": {"cache", "decode", "models", "parts"},
    "cuda": {"decode", "models", "parts"},
    "lane": {"cache", "sources", "decode", "models", "parts", "cpu", "cuda"},
    "endpoint": {"sources", "lane"},
    "space": {"cache", "sources", "engine", "record", "models", "cuda", "lane"},
    "doctor": {"cache", "gguf", "sources", "models", "parts", "cpu", "cuda", "lane", "endpoint", "space"},
    "bench": {"engine", "record", "quality"},
    "load": {"engine", "record"},
    "cli": {"engine", "record", "quality", "series", "bench", "load", "space", "decide", "report"},
}
BASELINES = {"bench.baseline", "bench.plain", "bench.dequantized", "bench.llama_cpp", "bench.worker", "bench.prompt"}  # these run in processes of their own
TAKES_OUTPUT = {"endpoint.worker"}  # imports no torch either (`tests/endpoint`), but takes its process's output for itself
ZERO = {"space.zero", "space.forked"}  # the one place where the page's process imports torch: on ZeroGPU it alone is lent a card
LANE_ROOMS = {"gguf", "sources", "decode", "models", "parts", "cpu", "cuda", "lane", "doctor"}
PAGE_MAY_IMPORT = {"engine", "record", "quality", "series", "decide", "report"}
PAGE = sorted((ROOT / "ui").rglob("*.py"))
PAGE_ROOMS: dict[str, set[str]] = {
    "programs": set(),
    "comparison": set(),
    "history": {"comparison"},
    "prompts": {"comparison"},
    "fork": {"comparison", "history"},
    "decide": {"comparison", "prompts"},
}
HEAVY = {"torch", "transformers", "bitsandbytes", "accelerate", "safetensors"}
MOST_FILES = 15
MOST_AT_THE_TOP = 20


def modules() -> dict[str, Path]:
    return {".".join(path.relative_to(ROOT / "inference").with_suffix("").parts): path for path in (ROOT / "inference").rglob("*.py")}


def room_of(module: str) -> str:
    """The room of a module named from `inference` on; empty for the vocabulary."""
    first, _, rest = module.partition(".")
    return first if rest and first != VOCABULARY else ""


def imported(path: Path) -> set[str]:
    """Everything a file imports, inside functions and under TYPE_CHECKING too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def ours(names: set[str]) -> set[str]:
    """Of imported names, our modules: "from inference.a import b" is module a.b where there is one, else a."""
    known, found = modules(), set()
    for name in names:
        if name.startswith("inference."):
            short = name.removeprefix("inference.")
            found.add(short if short in known else short.rpartition(".")[0] or short)
    return found


def rooms_in_need(module: str, path: Path) -> set[str]:
    """The rooms that a module imports from, its own left out."""
    return {room_of(name) if name in modules() else name.partition(".")[0] for name in ours(imported(path))} - {"", room_of(module)}


@pytest.mark.parametrize("module", sorted(modules()))
def test_a_module_imports_only_what_its_room_may(module):
    path, room = modules()[module], room_of(module)
    if module == "__main__":
        allowed = {"cli"}
    elif module in BASELINES:
        allowed = {"cache", "sources", "models", "lane", "decode"}
    else:
        allowed = MAY_IMPORT.get(room, set())
    rooms = {name for name in rooms_in_need(module, path) if name in MAY_IMPORT}
    assert rooms <= allowed, f"{module} imports from {sorted(rooms - allowed)}"


def test_the_rule_itself_has_no_circle():
    def reached(room: str, seen: tuple[str, ...]) -> None:
        assert room not in seen, f"circle: {' -> '.join((*seen, room))}"
        for other in MAY_IMPORT[room]:
            reached(other, (*seen, room))

    for room in MAY_IMPORT:
        reached(room, ())


def test_no_two_modules_import_each_other():
    graph = {module: ours(imported(path)) & set(modules()) for module, path in modules().items()}
    done: set[str] = set()

    def walk(module: str, way: tuple[str, ...]) -> None:
        assert module not in way, f"circle: {' -> '.join((*way, module))}"
        if module not in done:
            for other in graph[module]:
                walk(other, (*way, module))
            done.add(module)

    for module in graph:
        walk(module, ())


@pytest.mark.parametrize("path", PAGE, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_page_imports_no_lane_and_its_rooms_each_other_in_one_direction(path):
    assert rooms_in_need("ui", path) & set(MAY_IMPORT) <= PAGE_MAY_IMPORT
    assert not {name.partition(".")[0] for name in imported(path)} & HEAVY
    room = path.parent.name if path.parent.name in PAGE_ROOMS else ""
    others = {name.split(".")[1] for name in imported(path) if name.startswith("ui.")} & set(PAGE_ROOMS) - {room}
    assert path.name == "build.py" or others <= PAGE_ROOMS.get(room, set())


def test_the_page_s_rooms_stay_small():
    for folder in [ROOT / "ui", *(ROOT / "ui" / room for room in PAGE_ROOMS)]:
        assert len(list(folder.glob("*.py"))) <= MOST_FILES, folder


def test_heavy_libraries_are_imported_only_where_a_lane_process_works():
    for module, path in modules().items():
        if room_of(module) not in LANE_ROOMS and module not in BASELINES | ZERO:
            assert not {name.partition(".")[0] for name in imported(path)} & HEAVY, module


def test_what_a_page_and_the_command_line_import_brings_no_torch():
    light = [f"inference.{m}" for m in modules() if room_of(m) not in LANE_ROOMS and m not in BASELINES | TAKES_OUTPUT | ZERO and not m.endswith("__")]
    code = f"import sys; [__import__(name) for name in {light!r}]; print(sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_every_room_says_what_it_is_for_and_stays_small():
    for room in (*MAY_IMPORT, VOCABULARY):
        folder = ROOT / "inference" / room
        words = ast.get_docstring(ast.parse((folder / "__init__.py").read_text("utf-8"))) or ""
        assert "In:" in words and "Out:" in words and "May import" in words, room
        told = re.split(r"[.;]", words.split("May import: ")[1])[0]
        assert room == VOCABULARY or {word for word in re.findall(r"\w+", told) if word in MAY_IMPORT} == MAY_IMPORT[room], room
        assert len(list(folder.glob("*.py"))) <= MOST_FILES, room
    assert len(list((ROOT / "inference").glob("*.py"))) <= MOST_AT_THE_TOP


def test_the_table_of_rooms_tells_what_each_may_import():
    rows = re.findall(r"^\| `(\w+)/` \|.*\| ([^|]*) \|$", (ROOT / "CONTRIBUTING.md").read_text("utf-8").split("| in `ui/` |")[0], re.M)
    told = {room: set(re.findall(r"\w+", words)) & set(MAY_IMPORT) for room, words in rows}
    allowed = {room: set(MAY_IMPORT) - told[room] - {room} if room == "cli" else told[room] for room in MAY_IMPORT}
    assert allowed == MAY_IMPORT


def test_a_file_that_a_docstring_names_is_there():
    paths = [path for room in ("inference", "ui") for path in (ROOT / room).rglob("*.py")]
    names = {path.name for room in ("inference", "ui", "tests", "examples") for path in (ROOT / room).rglob("*.py")} | {"app.py"}
    for path in paths:
        docstring = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
        assert {name.rpartition("/")[2] for name in re.findall(r"`([\w/]+\.py)`", docstring)} <= names, path


def test_what_tests_share_is_listed():
    table = (ROOT / "CONTRIBUTING.md").read_text("utf-8").split("| in `tests/support/` |")[1]
    listed = {name for row in table.splitlines() if row.startswith("| `") for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert listed == {path.stem for path in (ROOT / "tests" / "support").glob("*.py")} - {"__init__"}
