"""The record of a comparison -> the table that people make by hand: a row a question, a column a lane.

Every cell is read off the record, an unknown figure is "n/a" with its reason. Lines of a cell are separated by a line
break. Text for a terminal is made here, Markdown in `markdown.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from inference import ends, terminal
from inference.energy import COVERS, of_an_answer
from inference.record import grid
from inference.record.figures import FIRST_TOKEN, MEMORY, SPEED, TOTAL, WEIGHTS, having
from inference.record.missing import ELSEWHERE, shown, why
from inference.record.model import LaneRecord, Record, RunRecord
from inference.record.quality import figure_rows
from inference.record.reproduce import load_call
from inference.record.scores import NoQuality
from inference.record.verdict import reference_of, summary_lines
from inference.units import UNKNOWN, count, joules, rate, seconds, size, watts

MOST_KEPT = 6  # parts of a 4-bit lane that are named in its cell
MOST_COUNTS = 3  # numbers of tokens that are told one by one
Cell = Callable[[Record, LaneRecord], str]
Words = Callable[[float | None], str]
NO_REST = "no rest of a second before a run"
QUALITY_COMMAND = "python -m inference quality"
VERSIONS = ("python", "torch", "transformers", "bitsandbytes", "accelerate", "huggingface_hub", "gradio")


@dataclass(frozen=True)
class Row:
    """A question and each lane's answer, in the order of the record's lanes."""

    title: str
    cells: tuple[str, ...]


def titles(record: Record) -> list[str]:
    """The lanes as column heads."""
    return [lane.title(name) for name, lane in record.lanes.items()]


def table_rows(record: Record) -> list[Row]:
    """All rows of the table; what went wrong and what must be said of the model have one only where there is such a thing."""
    failed = any(run.error for lane in record.lanes.values() for run in lane.runs)
    noted = any(lane.note for lane in record.lanes.values())
    left_out = [cell for cell, there in ((errors, failed), (_note, noted)) if not there]
    rows = [(title, cell) for title, cell in _ROWS if cell not in left_out]
    return [Row(title, tuple(cell(record, lane) for lane in record.lanes.values())) for title, cell in rows]


def _hardware(record: Record, lane: LaneRecord) -> str:
    found = record.environment
    if lane.on_gpu:
        return f"{found.gpu or 'CUDA device'}, {size(found.gpu_memory_bytes)}\ndriver {found.driver or UNKNOWN}"
    if lane.elsewhere:
        return f"{ELSEWHERE}, model {lane.model_id}" if lane.model_id else f"{UNKNOWN} ({lane.reason or ELSEWHERE})"
    if lane.device is None:
        return f"{UNKNOWN} ({lane.reason or why(lane, 'load')})"
    return f"{found.cpu or 'CPU'}, {lane.threads or UNKNOWN} threads\nRAM limit {size(found.ram_limit_bytes)}"


def _quantization(record: Record, lane: LaneRecord) -> str:
    found = lane.quantization
    if not found:
        return "none" if lane.precision else _not_here(lane)
    double = "double quantization" if found.get("double") else "no double quantization"
    kept = list(lane.not_quantized or ())
    rest = f" and {len(kept) - MOST_KEPT} smaller" if len(kept) > MOST_KEPT else ""
    return f"bitsandbytes {str(found.get('type')).upper()}, {double}\nnot quantized: {', '.join(kept[:MOST_KEPT]) or 'nothing'}{rest}"


def _data_type(record: Record, lane: LaneRecord) -> str:
    return f"{lane.compute_dtype} arithmetic\nstored as {lane.storage_dtype}" if lane.precision else _not_here(lane)


def _not_here(lane: LaneRecord) -> str:
    return f"{UNKNOWN} ({ELSEWHERE})" if lane.elsewhere else UNKNOWN


def _model_size(record: Record, lane: LaneRecord) -> str:
    parameters = record.model.parameters
    weights = shown(lane.weights_bytes, size, lane, "weights_bytes")
    return f"{weights}\n{parameters:,} parameters" if parameters and not lane.elsewhere and lane.model_id == record.model.id else weights


def _startup(record: Record, lane: LaneRecord) -> str:
    load = lane.load
    if not load:
        return f"{UNKNOWN} ({why(lane, 'load')})"
    spans = ", ".join(f"{name} {seconds(value)}" for name, value in load.spans.items())
    return f"{seconds(load.total_s)} ({'cold' if load.cold else 'warm'})\n{spans}"


def spread(lane: LaneRecord, key: str, words: Words) -> str:
    """The median of a figure, with n where there are repeats, and with min - max where they differ.

    Where no run counts, what the last one got to, marked as of a run that is in no comparison.
    """
    middle, last = getattr(lane.median, key), lane.shown_run
    if middle is None and last and not last.counted and getattr(last, key) is not None:
        return f"{words(getattr(last, key))} (of a run that {'failed' if last.error else 'was stopped'}; not counted)"
    told = shown(middle, words, lane, key)
    if lane.n < 2 or middle is None:
        return told
    low, high = words(getattr(lane.min, key)), words(getattr(lane.max, key))
    return f"{told} ({f'{low} - {high}, ' if low != high else ''}n {having(lane, key)})"


def _spread(key: str, words: Words) -> Cell:
    return lambda record, lane: spread(lane, key, words)


def _inference(record: Record, lane: LaneRecord) -> str:
    runs = lane.ended_runs or lane.runs
    out = _counts(run.new_tokens for run in runs)
    tokens = f"\n{out} token{'s' * (out != '1')} out, {_counts(run.prompt_tokens or None for run in runs)} in" if runs else ""
    by = [f"counted by {run.counted_by}" for run in runs if run.counted_by]
    return spread(lane, TOTAL.key, TOTAL.words) + tokens + (f"\n{_of_each(by)}" if by else "")


def _counts(of: Iterable[int | None]) -> str:
    """What several runs have, each number once: "3 or 5", of many of them "3 to 50"."""
    found = sorted({n for n in of if n is not None})
    return f"{found[0]} to {found[-1]}" if len(found) > MOST_COUNTS else " or ".join(map(str, found)) or UNKNOWN


def _waits(record: Record, lane: LaneRecord) -> str:
    waits = (("queue", "queue_s"), ("turn", "turn_wait_s"), ("load", "load_wait_s"))
    return "\n".join(f"{word} {spread(lane, key, seconds)}" for word, key in waits)


def _ram(record: Record, lane: LaneRecord) -> str:
    if lane.elsewhere:
        return _not_here(lane)
    return (
        f"{shown(lane.peak_ram_bytes, size, lane, 'ram')} peak over the imports (mapped files count)\n"
        f"{shown(lane.at_rest_bytes, size, lane, 'ram')} its own at rest (USS, imports included)"
    )


def _vram(record: Record, lane: LaneRecord) -> str:
    if not lane.on_gpu:
        return f"{UNKNOWN} ({why(lane, 'vram')})"
    words = (("reserved", "reserved"), ("allocated", "allocated"), ("device", "by the driver (CUDA context included)"))
    lines = [f"{shown(lane.peak_vram(key), size, lane, f'vram.{key}')} {word}" for key, word in words]
    positions = lane.peak_vram("positions")
    return "\n".join(lines + ([f"with a cache of {positions:,} positions"] if positions else []))


def _energy(record: Record, lane: LaneRecord) -> str:
    found = of_an_answer(run.energy for run in lane.ended_runs)
    if found is None:
        return f"{UNKNOWN} ({why(lane, 'energy')})"
    idle = f"at rest {watts(found.idle_watts)}: {joules(found.idle_joules)} in that time" if found.idle_watts is not None else f"at rest {UNKNOWN} ({NO_REST})"
    beside = ", that of lanes at work meanwhile too" if any(run.alone is False for run in lane.ended_runs) else ""
    return f"{joules(found.joules)} an answer (± {100 * found.error:.2g} %, n {found.n})\n{idle}\n{COVERS.get(found.source, found.source)}, other work included{beside}"


def response(record: Record, lane: LaneRecord) -> str:
    """A lane's answer, whole, with what must be said of it: noise, failed, stopped or cut."""
    run = lane.shown_run
    if run is None:
        return UNKNOWN
    noise = "(noise: random weights) " if "noise" in (lane.note or "") else ""
    if run.text.strip():
        return noise + run.text.strip() + _broken_off(run)
    return f"(no answer: the run {'failed' if run.error else 'was stopped'})"


def _broken_off(run: RunRecord) -> str:
    """What stands after a text that is no whole answer."""
    return {"failed": "\n(the run failed here)", "stopped": "\n(stopped here)", "length": "\n(cut at the token limit)"}.get(run.finish_reason, "")


def errors(record: Record, lane: LaneRecord) -> str:
    """What went wrong in a lane's runs, a line each; "none" where nothing did."""
    return "\n".join(dict.fromkeys(run.error for run in lane.runs if run.error)) or "none"


def _note(record: Record, lane: LaneRecord) -> str:
    return lane.note or "none"


def _quality(record: Record, lane: LaneRecord) -> str:
    found = record.quality
    name = next(name for name, each in record.lanes.items() if each is lane)
    if found and not isinstance(found, NoQuality) and name in found.lanes:
        rows = (f"{title} {words}" for title, words in figure_rows(found.lanes[name]))
        few = "" if found.figures.enough else " (too few for a verdict)"
        return "\n".join([*rows, f"on {count(found.figures.positions, 'position')} of the {found.source}{few}"])
    if lane.elsewhere:
        return f"{UNKNOWN} (a server gives no log-probabilities to score by)"
    if name == (found.reference if found and not isinstance(found, NoQuality) else reference_of(record.lanes)):
        return "the reference"
    return f"{UNKNOWN} ({found.error})" if isinstance(found, NoQuality) else f"{UNKNOWN} (not measured; {QUALITY_COMMAND} measures it)"


def conditions(record: Record, lane: LaneRecord) -> str:
    """How a lane was measured: mode, alone or not, cold or warm, path, kernel, number of runs and how they ended."""
    runs = lane.ended_runs or lane.runs
    if not runs:
        return UNKNOWN
    alone = _of_each([{True: "alone", False: "contended", None: "alone or not: unknown"}[each.alone] for each in runs])
    if lane.elsewhere:
        alone = "times taken at the client, network included"
    warm = _of_each([{True: "warm run", False: "cold run (first since the load)", None: "warm or cold: unknown"}[each.warm] for each in runs])
    reasons = "; ".join(dict.fromkeys(each.path_reason for each in lane.runs if each.path_reason))
    why_slow = f" ({reasons})" if reasons else ""
    paths = sorted({each.path for each in lane.runs if each.path}) or [UNKNOWN]
    others = len(lane.runs) - lane.n
    rest = f", not counted: {count(others, 'run')} that failed or {'was' if others == 1 else 'were'} stopped" if lane.n and others else ""
    how = "" if lane.elsewhere else f"path {' and '.join(paths)}{why_slow}, kernel {lane.kernel or UNKNOWN}\n"
    return f"{record.request.mode}, {alone}, {warm}\n{how}n {lane.n}, end: {_of_each([ends.WORDS[each.finish_reason] for each in runs])}{rest}"


def _of_each(told: Sequence[str]) -> str:
    """What holds of all runs, or of how many of them each: "2 of 3 contended, 1 of 3 alone"."""
    found = Counter(told)
    return told[0] if len(found) == 1 else ", ".join(f"{n} of {len(told)} {words}" for words, n in found.most_common())


def _faster_ways(record: Record, lane: LaneRecord) -> str:
    if lane.fast_used is None or lane.elsewhere:
        return _not_here(lane)
    left_out = [f"not {name}: {reason}" for name, reason in (lane.fast_why_not or {}).items()]
    return "\n".join([", ".join(lane.fast_used) or "none in use", *left_out])


def _dependencies(record: Record, lane: LaneRecord) -> str:
    skip: tuple[str, ...] = () if lane.quantization else ("bitsandbytes",)
    if lane.elsewhere:
        skip = ("torch", "transformers", "bitsandbytes", "accelerate")
    known = {name: getattr(record.environment, name) for name in VERSIONS if name not in skip}
    return ", ".join(f"{name} {version}" for name, version in known.items() if version) or UNKNOWN


_ROWS: tuple[tuple[str, Cell], ...] = (
    ("Code to load", lambda record, lane: load_call(lane) or UNKNOWN),
    ("Hardware", _hardware),
    ("Quantization", _quantization),
    ("Data type", _data_type),
    ("Device map", lambda record, lane: lane.device_map or _not_here(lane)),
    ("Model size", _model_size),
    ("To be said of it", _note),
    ("Startup time", _startup),
    ("Inference time", _inference),
    (FIRST_TOKEN.title, _spread(FIRST_TOKEN.key, FIRST_TOKEN.words)),
    ("Prefill speed", _spread("prefill_tps", rate)),
    ("Decode speed", _spread(SPEED.key, SPEED.words)),
    ("Waits, not in the above", _waits),
    ("RAM", _ram),
    ("VRAM", _vram),
    ("Energy", _energy),
    ("Response", response),
    ("Error", errors),
    ("Quality", _quality),
    ("Conditions", conditions),
    ("Our faster ways", _faster_ways),
    ("Dependencies", _dependencies),
)


def key_rows(record: Record) -> list[Row]:
    """The six rows that most people look for."""
    return [Row(title, tuple(cell(record, lane) for lane in record.lanes.values())) for title, cell in _KEY_ROWS]


def _memory(record: Record, lane: LaneRecord) -> str:
    told = shown(lane.memory_bytes, size, lane, "vram.reserved" if lane.on_gpu else "ram")
    return f"{told}, {lane.memory_kind}" if lane.memory_bytes else told


def _quality_in_short(record: Record, lane: LaneRecord) -> str:
    return _quality(record, lane).replace(f"not measured; {QUALITY_COMMAND} measures it", "--quality measures it")


_KEY_ROWS: tuple[tuple[str, Cell], ...] = (
    (SPEED.title, _spread(SPEED.key, SPEED.words)),
    (FIRST_TOKEN.title, _spread(FIRST_TOKEN.key, FIRST_TOKEN.words)),
    (TOTAL.title, _spread(TOTAL.key, TOTAL.words)),
    (MEMORY.title, _memory),
    (WEIGHTS.title, lambda record, lane: shown(lane.weights_bytes, size, lane, "weights_bytes")),
    ("Quality", _quality_in_short),
)


def text_rows(record: Record, rows: Sequence[Row], width: int) -> str:
    """Rows of the table in plain text, as wide as the terminal; a block a lane where it is narrow."""
    return grid.fitted([["", *titles(record)], *([row.title, *row.cells] for row in rows)], width)


def text_table(record: Record, width: int = terminal.USUAL_WIDTH) -> str:
    """The table in plain text, then the summary, in lines of at most `width` columns."""
    summary = (part for title, words in summary_lines(record) for part in terminal.wrap(terminal.printable(f"{title}: {words}"), width, hang=2))
    return "\n".join([text_rows(record, table_rows(record), width), "", *summary])
