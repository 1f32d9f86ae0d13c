"""The form of the tab "Decide": its fields in groups, a price for each lane, and beside each of them a place for what is wrong with it.

In: the lanes' status, and what was typed. Out: components, and an `Asked` or a `Refused`. Decides nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr

from inference.decide.model import Asked, Price
from inference.lanes import LaneName, lane_title, precision_words
from inference.status import LaneStatus
from ui.badge import escape
from ui.decide import fields, prices, view
from ui.decide.fields import FIELDS, LIMITS, LOAD, Field, Refused

NO_PRICE = "There is no price, so no cost. Choose a hardware, or type the dollars an hour, for one lane at least."
FILL = "(name, typed) => ({prices})[name] ?? typed"  # the hardware's price, where one is chosen


@dataclass(frozen=True)
class PriceFields:
    """Where a lane's price is asked: its hardware, dollars an hour, and what is wrong with them; `key` is the lane as configured."""

    key: str
    hardware: gr.Dropdown
    dollars: gr.Textbox
    refusal: gr.HTML

    @property
    def name(self) -> str:
        return f"price of {self.key}"


class Form:
    """Its components: `inputs` in the order that `asked` reads, and `refusals` by the field that each stands beside."""

    def __init__(self, lanes: Sequence[LaneStatus], short: dict[str, str]) -> None:
        with gr.Column(elem_id="decide-form"):
            numbers = [*_group("What it has to do", LOAD), *_group("What it has to keep, if anything", LIMITS)]
            gr.HTML(f'<h3>What an hour of its hardware costs</h3><p class="note">The list: {escape(prices.dated())}.</p>', elem_classes="group-head")
            with gr.Row(elem_classes="group"):
                self.prices = [_price(status, short[status.key]) for status in lanes]
        self.numbers = [number for number, _ in numbers]
        self.hardware = [each.hardware for each in self.prices]
        self.inputs: list[Any] = [*self.numbers, *(part for each in self.prices for part in (each.hardware, each.dollars))]
        self.refusals = {field.name: refusal for field, (_, refusal) in zip(FIELDS, numbers, strict=True)} | {each.name: each.refusal for each in self.prices}

    def wire(self) -> list[Any]:
        """Let a hardware fill its price in; what an Enter in a field triggers."""
        fill = FILL.replace("{prices}", json.dumps(prices.dollars()))
        for each in self.prices:
            each.hardware.input(None, inputs=[each.hardware, each.dollars], outputs=[each.dollars], js=fill, api_visibility="private")
        return [field.submit for field in (*self.numbers, *(each.dollars for each in self.prices))]

    def looks(self, lanes: Iterable[LaneStatus]) -> list[gr.Dropdown]:
        """The lists of hardware for the lanes as they are now."""
        return [gr.Dropdown(choices=prices.choices(status.name), label=_title(status)) for status in lanes]

    def asked(self, values: Sequence[Any], lanes: Sequence[LaneStatus], known: Iterable[str]) -> Asked:
        """What is wanted of the `known` lanes, of which there are records; raises Refused."""
        typed, measured = values[len(self.numbers) :], set(known)
        found: dict[str, Price] = {}
        for status, each, hardware, dollars in zip(lanes, self.prices, typed[::2], typed[1::2], strict=True):
            price = prices.read(each.name, status.name, _title(status), hardware, dollars or "")
            if price and status.name in measured:
                found[status.name] = price
        asked = fields.asked({field.name: value or "" for field, value in zip(FIELDS, values, strict=False)}, found)
        if not found:
            raise Refused(self.prices[0].name, NO_PRICE)
        return asked

    def beside(self, refused: Refused | None = None) -> list[str]:
        """What stands beside each field: nothing, but for the one that is `refused`."""
        return [view.refusal(str(refused)) if refused and name == refused.field else "" for name in self.refusals]


def _group(title: str, asked: Sequence[Field]) -> list[tuple[gr.Textbox, gr.HTML]]:
    gr.HTML(f"<h3>{title}</h3>", elem_classes="group-head")
    with gr.Row(elem_classes="group"):
        return [_number(field) for field in asked]


def _number(field: Field) -> tuple[gr.Textbox, gr.HTML]:
    with gr.Column(min_width=210, elem_classes="one-field"):
        number = gr.Textbox(field.value, label=field.label, info=field.info, placeholder=field.empty, max_lines=1, elem_id=f"decide-{field.name}")
        return number, gr.HTML(elem_classes="refusal")


def _price(status: LaneStatus, short: str) -> PriceFields:
    with gr.Column(min_width=280, elem_classes="one-field"):
        with gr.Row(elem_classes="price"):
            picked = gr.Dropdown(prices.choices(status.name), value=prices.OWN, label=_title(status), filterable=False, scale=3, min_width=160)
            typed = gr.Textbox(label=f"{short}, $ an hour", placeholder="no price", max_lines=1, scale=2, min_width=110)
        return PriceFields(status.key, picked, typed, gr.HTML(elem_classes="refusal"))


def _title(status: LaneStatus) -> str:
    """A lane as it is called beside a field: by its device once that is known."""
    name = LaneName.parse(status.name)
    if name.elsewhere:
        return status.title or name.server
    return precision_words(name.precision) if name.automatic else lane_title(name.precision, name.device)
