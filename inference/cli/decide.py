"""`python -m inference decide`: which lane to serve, by records that were measured before and by what the person wants.

In: parsed options. Out: the decision on stdout, or its JSON alone. Starts no lane; asks the Hub for a price only where a hardware is named.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from inference import terminal
from inference.cli import output
from inference.cli.exits import FAILED
from inference.decide import words
from inference.decide.asked import check_price, price_of
from inference.decide.costs import Curve
from inference.decide.decision import decide_with_curves
from inference.decide.evidence import gather
from inference.decide.load import with_load
from inference.decide.model import Asked, Decision, Price
from inference.errors import InferenceError, WrongArguments
from inference.host.hardware import Catalog
from inference.lanes import LaneName
from inference.record.export import dump
from inference.record.model import Record
from inference.record.read import read
from inference.record.scores import Quality
from inference.settings import Settings


def run(options: argparse.Namespace, settings: Settings) -> int:
    """Decide and print; returns 0, or 1 where nothing is decided or could not be written. Raises InferenceError."""
    asked = _asked(options)
    output.check_targets(options)
    held = [read(Path(name)) for name in options.records]
    records = [record for each in held for record in each.records]
    scored = [scored for each in held for scored in each.scored]
    found = gather(records, scored)
    found = with_load(found, Path(options.load)) if options.load else found
    decision, curves = decide_with_curves(asked, found)
    as_json = dump(words.as_json(decision))
    with output.never_lost(lambda: as_json):
        written = output.show(words.text(decision, terminal.width()), as_json if options.json == "-" else None)
        written &= options.json in (None, "-") or output.put(options.json, as_json)
        written &= not options.markdown or output.put(options.markdown, words.markdown(decision))
        written &= not options.report or output.put(options.report, _report(records, [each.quality for each in scored], decision, curves))
    return 0 if written and decision.chosen else FAILED


def _report(records: Sequence[Record], scored: Sequence[Quality], decision: Decision, curves: Mapping[str, Curve]) -> str:
    """The records' report with the decision, and each lane's cost over answers a day."""
    from inference.report.decision import cost_lines
    from inference.report.html import html_report  # with the templates' library, which nothing else here needs

    return html_report(records, decision, cost_lines(decision, {lane: curve.month for lane, curve in curves.items()}), scored)


def _asked(options: argparse.Namespace) -> Asked:
    return Asked(
        options.answers_per_day, _prices(options.price), options.tokens, options.max_first_token, options.max_total, options.min_agreement, options.max_lost,
        options.open_hours, options.sleep_after,
    )  # fmt: skip


def _prices(given: list[str]) -> dict[str, Price]:
    """The price of each lane; raises WrongArguments for one that is none, or given twice."""
    found: dict[str, Price] = {}
    catalog: Catalog | None = None
    for words_of_one in given:
        lane, _, value = words_of_one.partition("=")
        name = _lane(lane, words_of_one)
        if name in found:
            raise WrongArguments(f"--price gives {name} two prices. Give one.")
        try:
            found[name] = Price(float(value), "typed: your --price")
        except ValueError:
            catalog = catalog or _catalog()
            found[name] = _of_hardware(name, value, catalog)
        check_price(name, found[name])
    return found


def _lane(lane: str, given: str) -> str:
    try:
        return str(LaneName.parse(lane))
    except InferenceError as error:
        raise WrongArguments(f"--price takes LANE=DOLLARS or LANE=HARDWARE, such as cuda:nf4=0.8 or cuda:nf4=l4x1, not {given!r}.") from error


def _catalog() -> Catalog:
    from inference.space.prices import catalog  # with the Hub's library, which a typed price does not need

    return catalog()


def _of_hardware(lane: str, value: str, catalog: Catalog) -> Price:
    """The price of a hardware that the Hub rents, per hour; raises WrongArguments where it has none, or no GPU for a lane that needs one."""
    if not value:
        raise WrongArguments(f"--price {lane}= has no price. Give dollars an hour, such as {lane}=0.8, or a hardware, such as {lane}=l4x1.")
    hardware = catalog.named(value)
    if hardware.dollars_per_hour is None:
        raise WrongArguments(f"{hardware.name} has no price ({hardware.price()}). Type the dollars an hour: --price {lane}=DOLLARS.")
    if LaneName.parse(lane).on_gpu and not hardware.gpu:
        raise WrongArguments(f"{lane} needs a GPU, and {hardware.name} has none. Name another hardware, or type the dollars an hour.")
    return price_of(lane, hardware, catalog)
