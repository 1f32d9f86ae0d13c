"""The record -> who won, in three or four short facts; for more than two lanes, the lanes in order of speed.

What the page shows above the answers, a command prints first and the visitor copies. In: a record. Out: facts with the winner's lane, a tie
called a tie, and the caveat that goes with them. A ratio is always told from the winner's side.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from inference.lanes import LaneName, short_word
from inference.record.figures import FIRST_TOKEN, SPEED, WEIGHTS, Figure
from inference.record.missing import why
from inference.record.model import LaneRecord, Pair, Record, RunRecord
from inference.record.verdict import cut_at, reference_of
from inference.units import UNKNOWN, count, same_size

# scripts that put no spaces between words: Thai, Lao, Burmese, Khmer, kana, Han
_NO_SPACES = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
WORD = re.compile(r"\S+")


@dataclass(frozen=True)
class Fact:
    """One line of the scoreboard. `winner`: the lane's name, None where there is none; `numbers`: both measured values, empty where there are none."""

    title: str
    words: str
    winner: str | None = None
    numbers: str = ""


@dataclass(frozen=True)
class Standing:
    """One lane among several, as words: its place is its place in the list."""

    lane: str
    title: str
    speed: str
    first_token: str
    weights: str
    answer: str


OTHER_COMMITS = "The lanes had different commits of one model ({}): it was changed on the Hub meanwhile, so the answers differ by that too. Start anew."
OTHER_MODELS = "The lanes were given models of other names ({}): whether their weights are the same is not known here."
TITLES = ("Writing speed", "First word", "Size", "Answers")
_WON = {SPEED.key: "writes {} faster", FIRST_TOKEN.key: "starts {} sooner", WEIGHTS.key: "is {} smaller"}
_TIED = {SPEED.key: "Equally fast", FIRST_TOKEN.key: "Equally soon", WEIGHTS.key: "The same size"}
_FIGURES = (SPEED, FIRST_TOKEN, WEIGHTS)


def factor(ratio: float) -> str:
    """How many times, from the larger side: "1.3×", "26×"."""
    more = max(ratio, 1 / ratio)
    return f"{more:.1f}×" if more < 9.95 else f"{more:.0f}×"


def facts(record: Record) -> tuple[Fact, ...]:
    """The scoreboard of two lanes; empty for another number of lanes (`standings`) and where nothing may be held against anything (`no_winner`)."""
    if len(record.lanes) != 2 or not record.verdict.pairs:
        return ()
    pair = record.verdict.pairs[0]
    told = (_fact(title, figure, record, pair) for title, figure in zip(TITLES, _FIGURES, strict=False))
    return (*told, Fact(TITLES[-1], answers(record, pair)))


def _fact(title: str, figure: Figure, record: Record, pair: Pair) -> Fact:
    other, reference = record.lanes[pair.other], record.lanes[pair.reference]
    ratio = figure.ratio(other, reference)
    if not ratio:
        lane = other if not figure.read(other) else reference
        return Fact(title, f"{UNKNOWN}: {why(lane, figure.key)}")
    numbers = figure.numbers(other, reference)
    if same_size(ratio):
        return Fact(title, _TIED[figure.key], None, numbers)
    won, lost = (pair.other, pair.reference) if (ratio > 1) == figure.more_is_better else (pair.reference, pair.other)
    return Fact(title, f"{name(record, won)} {_WON[figure.key].format(factor(ratio))}", won, figure.numbers(record.lanes[won], record.lanes[lost]))


def name(record: Record, lane: str) -> str:
    """A lane in as few words as tell it from the others: "4-bit", "FP32", and with its device where two are of one precision."""
    words = {key: each.server or short_word(each.precision or LaneName.parse(key).precision) for key, each in record.lanes.items()}
    return record.lanes[lane].title(lane) if list(words.values()).count(words[lane]) > 1 else words[lane]


def answers(record: Record, pair: Pair) -> str:
    """Whether the two answers are the same, and if not, from which word on they differ."""
    runs = [_answer(record, lane) for lane in (pair.reference, pair.other)]
    if pair.identical:
        return "The same so far" if any(run.finish_reason == "length" for run in runs) else "The same, word for word"
    left, right = (run.text for run in runs)
    if left == right:
        return "The same words, other tokens"
    place = first_different_word(left, right)
    if place is not None:
        return f"Differ from word {place}"
    return "Differ" if pair.first_divergence is None else f"Differ from token {pair.first_divergence + 1}"


def _answer(record: Record, lane: str) -> RunRecord:
    return record.lanes[lane].ended_runs[-1]


def first_different_word(left: str, right: str) -> int | None:
    """The place, from 1, of the first word that differs; None where they are the same, or up to there in a script without spaces between words."""
    words = left.split(), right.split()
    if words[0] == words[1]:
        return None
    place = next((i for i, (a, b) in enumerate(zip(*words, strict=False), 1) if a != b), min(map(len, words)) + 1)
    return None if any(_NO_SPACES.search(word) for side in words for word in side[:place]) else place


def parting(record: Record) -> dict[str, tuple[int, int]]:
    """Of two lanes whose answers part at a word, where that word begins and ends in each text (both at its end where it has no more); empty where there is none."""
    if len(record.verdict.pairs) != 1 or record.verdict.pairs[0].identical:
        return {}
    pair = record.verdict.pairs[0]
    texts = {lane: _answer(record, lane).text for lane in (pair.reference, pair.other)}
    place = first_different_word(*texts.values())
    return {} if place is None else {lane: _word(text, place) for lane, text in texts.items()}


def _word(text: str, place: int) -> tuple[int, int]:
    words = list(WORD.finditer(text))
    return words[place - 1].span() if place <= len(words) else (len(text), len(text))


def no_winner(record: Record) -> str:
    """Why nothing is held against anything, in one sentence; empty where something is."""
    if record.verdict.pairs:
        return ""
    ended = [lane for lane, each in record.lanes.items() if each.n]
    if len(ended) > 1:
        if reference_of(record.lanes) not in record.lanes:
            return "No winner: there is no lane that all are held against (FP32 on the CPU, else bf16 on the GPU)."
        return f"No winner: the lane that all are held against ({name(record, reference_of(record.lanes))}) has no whole answer."
    how = [f"{name(record, lane)} {_how(each)}" for lane, each in record.lanes.items() if not each.n]
    return f"No winner: {' and '.join(how)}." if how else "No winner: it takes two lanes."


def _how(lane: LaneRecord) -> str:
    run = lane.shown_run
    return "was not run" if run is None else "was stopped" if run.finish_reason == "stopped" else "failed"


def caveat(record: Record) -> str:
    """What must be said beside the facts, in a sentence or two; of more than two lanes first which writes fastest."""
    held = list(dict.fromkeys(lane for pair in record.verdict.pairs for lane in (pair.other, pair.reference)))
    lanes = [record.lanes[lane] for lane in held]
    if not lanes:
        return ""
    here = [lane for lane in lanes if not lane.elsewhere]
    one_device = len({lane.device for lane in here}) == 1
    models = {lane.model_id: name(record, key) for key, lane in zip(held, lanes, strict=True) if not lane.elsewhere and lane.model_id}
    commits = {lane.revision: name(record, key) for key, lane in zip(held, lanes, strict=True) if lane.model_id == lanes[0].model_id and lane.revision}
    parts = [OTHER_COMMITS.format(", ".join(f"{whose} {commit[:12]}" for commit, whose in commits.items()))] if len(commits) > 1 else []
    parts += [f"{first}."] if (first := fastest(record)) else []
    parts += [f"{lane.server} is a server elsewhere: its times are taken here, the network included." for lane in lanes if lane.elsewhere]
    parts += [OTHER_MODELS.format(", ".join(f"{whose} {model}" for model, whose in models.items()))] if len(models) > 1 else []
    if one_device and len(here) == len(lanes) == 2 and len(commits) < 2 and len(models) < 2:
        parts.append("Both ran on the same device: what differs is the precision, and the kernels for it.")
    if record.verdict.device_effect and record.verdict.precision_effect:
        parts.append(
            f"Of the speed, the device makes {_effect(record.verdict.device_effect)} and 4 bits with their kernels make {_effect(record.verdict.precision_effect)}."
        )
    elif not one_device:
        parts.append(_at_once(record, held))
    runs = [run for lane in lanes for run in lane.ended_runs]
    slower = [lane for lane in held if any(run.path_reason for run in record.lanes[lane].ended_runs)]
    parts += [f"{name(record, lane)} was not at its fastest." for lane in slower]
    parts += _cut(record, held)
    if any(run.alone is False for run in runs):
        parts.append("Other runs went on beside, which slows.")
    fresh = _whose(record, [lane for lane in held if not record.lanes[lane].elsewhere], lambda run: run.warm is False)
    parts += [f"{' and '.join(fresh)} answered for the first time since the load, which slows."] if 0 < len(fresh) < len(here) else []
    parts += [f"{name(record, lane)} did not answer the same each time: its last answer is held against the other's." for lane in held if _varies(record, lane)]
    parts += _overlap(record, held)
    once = [lane for lane in held if record.lanes[lane].n == 1]
    if once:
        whose = "One run each" if len(once) == len(held) else f"Of {' and '.join(name(record, lane) for lane in once)} there is one run"
        parts.append(f"{whose}: times vary from run to run.")
    return " ".join(parts)


def _cut(record: Record, held: Sequence[str]) -> list[str]:
    """Which answers did not end by themselves, where that is not all of them: the totals beside them are of unlike answers."""
    whose = _whose(record, held, lambda run: run.finish_reason == "length")
    limit = f"Cut at {cut_at(record, (run for lane in held for run in record.lanes[lane].ended_runs))}"
    return [] if not whose else [f"{limit}."] if whose == [name(record, lane) for lane in held] else [f"{limit}: {', '.join(whose)}."]


def _whose(record: Record, held: Sequence[str], of: Callable[[RunRecord], bool]) -> list[str]:
    """The lanes of whose runs something holds, and of how many where that is not all: "4-bit in 1 of 2 runs"."""
    found = {lane: [of(run) for run in record.lanes[lane].ended_runs] for lane in held}
    return [name(record, lane) + ("" if all(each) else f" in {sum(each)} of {count(len(each), 'run')}") for lane, each in found.items() if any(each)]


def _varies(record: Record, lane: str) -> bool:
    """Whether a lane's repeats gave different answers; of a record that holds several prompts' runs that says nothing."""
    found = record.lanes[lane]
    return _of_one_prompt(record, found) and len({run.token_ids or run.text for run in found.ended_runs}) > 1


def _of_one_prompt(record: Record, lane: LaneRecord) -> bool:
    return len(lane.runs) <= record.request.repeats


def _overlap(record: Record, held: Sequence[str]) -> list[str]:
    """In what one of two lanes is ahead by the medians, though runs of the other one were as good; of several prompts' runs that says nothing."""
    lanes = [record.lanes[lane] for lane in held]
    if len(lanes) != 2 or any(lane.n < 2 or not _of_one_prompt(record, lane) for lane in lanes):
        return []
    found = [title.lower() for title, figure in zip(TITLES, (SPEED, FIRST_TOKEN), strict=False) if _mixed(figure, *lanes)]
    return [f"The lanes' runs overlap in {' and '.join(found)}: who is ahead there may be chance."] if found else []


def _mixed(figure: Figure, one: LaneRecord, other: LaneRecord) -> bool:
    ratio, lows, highs = figure.ratio(one, other), *([getattr(each, figure.key) for each in ends] for ends in ((one.min, other.min), (one.max, other.max)))
    return bool(ratio) and not same_size(ratio or 0) and None not in (*lows, *highs) and max(lows) <= min(highs)


def _at_once(record: Record, held: Sequence[str]) -> str:
    """Which of the lanes differ from the reference in device and precision, so that the speed is credited to neither alone."""
    reference = record.verdict.pairs[0].reference
    apart = [lane for lane in held if not record.lanes[lane].elsewhere and record.lanes[lane].device != record.lanes[reference].device]
    what = "quantization" if any(LaneName.parse(lane).four_bit for lane in apart) else "precision"
    if len(held) == 2:
        return f"Device and precision differ at once: the speed is not the {what}'s doing alone."
    titles = " and ".join(record.lanes[lane].title(lane) for lane in apart)
    return f"From {record.lanes[reference].title(reference)} to {titles} device and precision differ at once: that speed is not the {what}'s doing alone."


def _effect(ratio: float) -> str:
    """A factor as it is: below 1 it slows."""
    return f"{ratio:.2f}×" if ratio < 0.95 else f"{ratio:.1f}×"


def fastest(record: Record) -> str:
    """Of more than two lanes which one writes fastest, and how much faster than the next; empty where there is nothing to hold that against."""
    return ", ".join(filter(None, _fastest(record)))


def in_short(record: Record) -> str:
    """Who won, in a few words: "4-bit writes 1.3× faster"."""
    if told := facts(record):
        return next(fact.words for fact in told if not fact.words.startswith(UNKNOWN))  # whether the answers differ is always known
    if not record.verdict.pairs:
        return no_winner(record).rstrip(".")
    return _fastest(record)[0] or "No two speeds to compare"


def _fastest(record: Record) -> tuple[str, str]:
    """Which lane writes fastest, or which equally fast, and what they are held against."""
    known = {lane: speed for lane, each in record.lanes.items() if each.n and (speed := SPEED.read(each))}
    if len(record.lanes) < 3 or len(known) < 2 or not record.verdict.pairs:
        return "", ""
    first, *others = sorted(known, key=lambda lane: -known[lane])
    tied = [lane for lane in others if same_size(known[first] / known[lane])]
    if tied:
        *before, last = (record.lanes[lane].title(lane) for lane in (first, *tied))
        return f"{', '.join(before)} and {last} write equally fast", "ahead of the others" if len(tied) < len(others) else ""
    title, after = (record.lanes[lane].title(lane) for lane in (first, others[0]))
    return f"{title} writes fastest", f"{factor(known[first] / known[others[0]])} faster than {after}"


def standings(record: Record) -> tuple[Standing, ...]:
    """Every lane, the fastest writer first, those without a speed last; for more than two lanes."""
    order = sorted(record.lanes, key=lambda lane: -(SPEED.read(record.lanes[lane]) or 0))
    return tuple(_standing(record, lane) for lane in order)


def _standing(record: Record, lane: str) -> Standing:
    found = record.lanes[lane]
    pair = next((pair for pair in record.verdict.pairs if pair.other == lane), None)
    if pair:
        told = re.sub("^Differ", "Differs", answers(record, pair))
    elif found.n:
        told = "the reference" if any(pair.reference == lane for pair in record.verdict.pairs) else "no reference"
    else:
        told = _how(found)
    speed, first_token, weights = (figure.words(figure.read(found)) for figure in _FIGURES)
    return Standing(lane, found.title(lane), speed, first_token, weights, told)


def as_text(record: Record) -> list[str]:
    """The scoreboard in lines, as a command prints it and a visitor copies it."""
    if told := facts(record):
        width = max(len(fact.title) for fact in told)
        lines = [f"{fact.title.ljust(width)}  {fact.words}{f' ({fact.numbers})' if fact.numbers else ''}" for fact in told]
    elif record.verdict.pairs:
        lines = [
            f"{place}. {each.title}: {each.speed}, first word {each.first_token}, {each.weights}, answer: {each.answer}"
            for place, each in enumerate(standings(record), 1)
        ]
    else:
        lines = [no_winner(record)]
    return [*lines, *filter(None, [caveat(record)])]
