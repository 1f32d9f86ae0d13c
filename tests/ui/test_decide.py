"""The tab "Decide" without a browser: what is asked and refused, whose records count, the decision in the page's words, and hostile text in it."""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from types import SimpleNamespace

import gradio as gr
import pytest

from inference.decide.evidence import Gathered
from inference.decide.model import Price
from inference.errors import InferenceError
from inference.record.model import Row
from tests.support.decisions import asked, lane
from tests.support.fakes import Stage
from tests.support.records import ended, record_of
from ui.comparison.handlers import Page
from ui.decide import fields, form, prices, view
from ui.decide.fields import Refused
from ui.decide.measured import FIRST, NONE_COUNTED, Measured, measured
from ui.decide.tab import Decided, DecideTab
from ui.decide.words import markdown
from ui.download import NOTHING
from ui.prompts.tab import PromptsTab

VISITOR, ANOTHER = SimpleNamespace(session_hash="tab"), SimpleNamespace(session_hash="another")
EVIL = "<img src=x onerror='window.hurt=1'> ${window.hurt=1} `x`"
TYPED = {"answers_per_day": "1000", "open_hours": "24"}


@pytest.fixture(scope="module")
def built():
    stage = Stage(("cpu:nf4", "cpu:fp32"))
    with gr.Blocks():
        page = Page(stage.engine, lambda: None)
        return DecideTab(page, PromptsTab(page))


@pytest.fixture
def tab(built):
    """The one tab, with nothing kept of any visitor."""
    for who in (VISITOR, ANOTHER):
        for leave in (built.page.leave, built.prompts.leave, built.leave):
            leave(who)
    return built


def record(number: int = 0, model: str = "fake/model", **more):
    made = record_of(cpu_nf4=ended(20, total=1.0 + number / 100), cpu_fp32=ended(5, total=4.0 + number / 100))
    asked_for = replace(made.request, prompt=f"prompt {number}")
    return replace(made, created=f"2026-11-29T12:00:{number:02d}+00:00", model=replace(made.model, id=model), request=asked_for, **more)


def keep(tab: DecideTab, *records, who=VISITOR) -> None:
    for number, each in enumerate(records):
        tab.page.histories.add(who.session_hash, f"c{number}", lambda each=each: each)


def pressed(tab: DecideTab, *dollars: str, who=VISITOR, **values: str) -> dict[str, object]:
    """What a press of Decide ends with, by component: skipped ones left out."""
    typed = [{**TYPED, **values}.get(field.name, "") for field in fields.FIELDS]
    *_, last = tab.decide(who, *typed, *(part for each in dollars for part in (prices.OWN, each)))
    names = ["rests", "said", "shown", "report", *tab.form.refusals]
    return {name: value for name, value in zip(names, last, strict=True) if value not in ("", gr.skip())}


def told(html: object) -> str:
    return re.search(r'class="told">(.*?)</p>', str(html))[1].replace("&#36;", "$")


# ---- what is asked


@pytest.mark.parametrize(
    ("field", "text", "sentence"),
    [
        ("answers_per_day", "", "The number of answers a day is missing. Fill it in, such as 1000."),
        ("answers_per_day", "0", "The number of answers a day must be more than 0 and 1,000,000,000 at most, not 0."),
        ("answers_per_day", "many", "must be a number, such as 20 or 0.5, not “many”."),
        ("tokens", "20.5", "must be a whole number, not 20.5."),
        ("open_hours", "25", "more than 0 and 24 at most, not 25."),
        ("sleep_after_min", "-1", "0 minutes or more, not -1."),
        ("max_first_token_s", "nan", "more than 0 s, not nan."),
        ("max_total_s", "0.5", "The whole answer may take no less than its first word."),
        ("min_agreement", "101", "0 % or more and 100 % at most, not 101."),
        ("max_lost", "-2", "not -2."),
    ],
)
def test_a_value_that_can_t_be_meant_is_refused_by_its_own_field(field, text, sentence):
    limit = {"max_first_token_s": "1"} if field == "max_total_s" else {}
    with pytest.raises(Refused, match=re.escape(sentence)) as refused:
        fields.asked({**TYPED, **limit, field: text}, {})
    assert refused.value.field == field


def test_numbers_are_read_as_people_type_them_and_an_empty_field_is_no_limit():
    wanted = fields.asked({**TYPED, "answers_per_day": " 12,000 ", "min_agreement": "98 %", "max_lost": "0", "max_total_s": "2.5"}, {})
    assert (wanted.answers_per_day, wanted.min_agreement, wanted.max_lost, wanted.max_total_s) == (12_000, 0.98, 0, 2.5)
    assert wanted.tokens is wanted.sleep_after_min is wanted.max_first_token_s is None and wanted.open_hours == 24


@pytest.mark.parametrize("text", ["0,500", "0,050", "-0,500", "0,5", "1,5", "1.500,0", "1,500,0", "1,0000"])
def test_a_decimal_comma_is_never_taken_for_thousands(text):
    for counts in (True, False):
        with pytest.raises(Refused, match=re.escape(f"It must be a number, such as 20 or 0.5, not “{text}”.")):
            fields.number("a", "It", text, counts)


def test_one_comma_before_three_digits_is_thousands_of_a_count_and_asked_about_elsewhere():
    assert fields.asked({**TYPED, "answers_per_day": "1,500", "tokens": "1,500"}, {}) == replace(fields.asked(TYPED, {}), answers_per_day=1500, tokens=1500)
    for field in ("max_first_token_s", "sleep_after_min"):
        with pytest.raises(Refused, match=re.escape("can be read in two ways: type 1.5 or 1500, not “1,500”.")) as refused:
            fields.asked({**TYPED, field: "1,500"}, {})
        assert refused.value.field == field
    with pytest.raises(Refused, match="The price for FP32 can be read in two ways: type 1.25 or 1250, not “1,250”"):
        prices.read("p", "cpu:fp32", "FP32", None, "$1,250")
    assert fields.number("a", "It", "1,500.5") == 1500.5 and fields.number("a", "It", "1,500,000") == 1_500_000 and fields.number("a", "It", "0.5") == 0.5


def test_dots_before_three_digits_of_a_count_are_asked_about():
    for field in ("answers_per_day", "tokens"):
        with pytest.raises(Refused, match=re.escape("can be read in two ways: type 1 or 1000, not “1.000”.")):
            fields.asked({**TYPED, field: "1.000"}, {})
    with pytest.raises(Refused, match=re.escape("type 1000000, not “1.000.000”")):
        fields.asked({**TYPED, "answers_per_day": "1.000.000"}, {})
    assert fields.asked({**TYPED, "answers_per_day": "0.125", "max_total_s": "1.250"}, {}).max_total_s == 1.25


def test_a_price_is_the_hardware_s_with_its_date_unless_another_is_typed():
    rented = prices.read("p", "cuda:nf4", "4-bit", "l4x1", "")
    assert rented == prices.read("p", "cuda:nf4", "4-bit", "l4x1", "$0.80") and (rented.dollars_per_hour, rented.gpu) == (0.8, "NVIDIA L4")
    assert "prices read 20" in rented.source and rented.memory_bytes == 24 * 10**9
    assert prices.read("p", "cuda:nf4", "4-bit", "l4x1", "0.5") == replace(rented, dollars_per_hour=0.5, source="typed, for l4x1")
    assert prices.read("p", "cpu:fp32", "FP32", prices.OWN, "0.1") == Price(0.1, "typed") and prices.read("p", "cpu:fp32", "FP32", None, "") is None
    with pytest.raises(Refused, match="The price for FP32 must be from 0 to 1,000,000 dollars an hour, not -1."):
        prices.read("p", "cpu:fp32", "FP32", None, "-1")
    for typed in ("1e7", "nan", "inf"):  # beside its field, as all that can't be meant
        with pytest.raises(Refused, match="The price for FP32 must be from 0 to 1,000,000 dollars an hour"):
            prices.read("p", "cpu:fp32", "FP32", None, typed)


def test_each_lane_is_offered_what_it_can_be_rented_on():
    names = {key: [name for _, name in prices.choices(key)] for key in ("cuda:nf4", "cpu:fp32", "endpoint:vllm")}
    assert "l4x1" in names["cuda:nf4"] and "cpu-upgrade" in names["cpu:fp32"] and names["endpoint:vllm"] == [prices.OWN]
    assert "cpu-upgrade" not in names["cuda:nf4"] and "l4x1" not in names["cpu:fp32"] and not {"zero", "l4x4"} & set(names["cuda:nf4"])


# ---- what it rests on


def test_only_the_newest_model_s_records_count_and_the_others_are_told():
    found = measured([record(0, "old/model"), *(record(number) for number in range(1, 4))])
    assert (found.runs, found.prompts, found.others, found.found.model) == (6, 3, 1, "fake/model")
    assert found.words() == "It rests on 6 runs of 3 prompts in this browser tab, answered by fake/model. 1 comparison with another model is left out."
    assert "Fewer than 3 runs" in measured([record()]).words() and measured([]) is None


def test_a_prompt_of_which_only_a_cold_run_was_made_is_none_of_those_that_it_rests_on():
    runs = [ended(5), ended(5), ended(5)]
    runs[0] = replace(runs[0], done=replace(runs[0].done, warm=False))
    kept = [replace(record_of(cpu_nf4=run, cpu_fp32=run), request=replace(record().request, prompt=f"prompt {n}")) for n, run in enumerate(runs)]
    assert measured(kept).words().startswith("It rests on 4 runs of 2 prompts in this browser tab")
    assert measured(kept[:1]).words().startswith("It rests on 2 runs of 1 prompt in this browser tab")


def test_that_the_page_answers_by_another_model_now_is_told():
    found = measured([record()])
    assert "The page answers by new/model now: ask it a prompt, and a decision is about it." in found.words("new/model")
    assert "now" not in found.words("fake/model") + found.words("")


def test_what_was_stopped_measures_nothing():
    assert measured([record_of(cpu_nf4=ended(5, reason="stopped"), cpu_fp32=ended(5, reason="stopped"))]).words() == NONE_COUNTED


def test_another_visitor_s_records_never_count(tab):
    keep(tab, *map(record, range(3)), who=ANOTHER)
    assert FIRST in str(pressed(tab, "0.8", "0.1")["said"]) and "6 runs" not in str(tab.look(VISITOR)[0])
    assert "6 runs of 3 prompts" in str(tab.look(ANOTHER)[0])


def test_rows_of_a_prompts_file_count_with_the_answers_that_were_lost(tab):
    rows = [replace(record(number), row=Row(number, "abc")) for number in range(3)]
    tab.prompts.series.put("tab", SimpleNamespace(records=rows, stop=threading.Event()), 1)
    shown = str(pressed(tab, "0.8", "0.1")["shown"])
    assert "It rests on 6 runs of 3 prompts" in shown and "0 of 3" in shown


# ---- the decision


def test_the_price_decides_and_flips_it(tab):
    keep(tab, *map(record, range(3)))
    assert told(pressed(tab, "0.8", "0.1")["shown"]).startswith("Serve FP32 on the CPU: $73.00 a month, and 4-bit NF4 on the CPU $584.00")
    assert told(pressed(tab, "0.05", "0.1")["shown"]).startswith("Serve 4-bit NF4 on the CPU: $36.50 a month, and FP32 on the CPU $73.00")


def test_a_refusal_stands_beside_its_field_and_the_decision_stays(tab):
    keep(tab, *map(record, range(3)))
    pressed(tab, "0.8", "0.1")
    assert pressed(tab, "", "") == {"price of cpu:nf4": f'<p role="alert">{form.NO_PRICE}</p>'}
    assert list(pressed(tab, "0.8", "0.1", open_hours="25")) == ["open_hours"]
    name, text = tab.as_report(VISITOR)[::-1]
    assert name == "decision.html" and "Serve FP32 on the CPU" in text and "cpu:fp32 keeps" not in text
    with pytest.raises(gr.Error, match=NOTHING):
        tab.as_report(ANOTHER)


def test_a_visitor_over_the_limit_is_told_beside_the_button(tab, monkeypatch):
    keep(tab, *map(record, range(3)))

    def enter(*_):
        raise InferenceError("Try again in 5 s.")

    monkeypatch.setattr(tab.page.visitors, "enter", enter)
    assert pressed(tab, "0.8", "0.1") == {"said": '<p role="alert">Try again in 5 s.</p>'}


def test_nothing_of_the_command_s_words_is_left_on_the_page():
    few = [lane("cuda:nf4", 2.0), lane("cpu:fp32", 2.0, 2.1, 2.2)]
    wanted = asked(max_first_token_s=1.0, max_total_s=9.0, min_agreement=0.9, max_lost=0.1, cpu=None)
    remark = "The records cut answers at unlike numbers of tokens (cuda:nf4 at 50), so their totals are of unlike answers; --tokens N makes them alike."
    for lanes in (few, few[::-1]):
        decided = Decided.by(wanted, Measured((), Gathered("m", tuple(lanes), (remark,)), 1, 0))
        text = view.view(decided.decision, decided.costs, "") + markdown(decided.decision)
        assert not re.search(r"python -m|--[a-z]|DOLLARS|irst token|`expected`", text.replace("token by token", ""))
        assert not re.search(r"(cuda|cpu):(nf4|fp32)", re.sub(r'data-copy="[^"]*"', "", view.view(decided.decision, decided.costs, "")))
        assert (
            "Compare the answers token by token" in text
            and "a prompts file with expected answers measures it" in text
            and "ask more prompts, until 3 runs of it count" in text
        )


def test_not_decided_is_no_error_and_no_lane_s_colour():
    close = Measured((), Gathered("m", (lane("cuda:nf4", 2, 2, 2), lane("cpu:fp32", 2, 2, 2))), 3, 0)
    decided = Decided.by(asked(min_agreement=0.9, gpu=0.05), close)
    shown = view.view(decided.decision, decided.costs, close.words())
    assert '<div class="verdict " data-state="undecided"><p class="head">Not decided</p><p class="told">Same first choice of 4-bit' in shown
    assert "alert" not in shown and "fault" not in shown


def test_every_figure_has_where_it_is_from_and_the_costs_are_drawn():
    found = Measured((), Gathered("m", (lane("cuda:nf4", 1, 1, 1), lane("cpu:fp32", 4, 4, 4))), 3, 0)
    decided = Decided.by(asked(30_000, gpu=0.3, cpu=0.1), found)
    shown = view.view(decided.decision, decided.costs, "")
    assert shown.count("<polyline") == 2 and 'class="of-turn"' in shown and "asked: 30,000" in shown
    sources = re.findall(r'<span class="about">([^<]*)</span></summary>(.*?)</details>', shown)
    assert {"Cost a month", "First word", "Price", "Machines"} <= {title for title, _ in sources} and all("<p>" in told for _, told in sources)


def test_costs_are_drawn_however_large_or_small_they_are_and_what_was_asked_as_it_was_asked():
    found = Measured((), Gathered("m", (lane("cuda:nf4", 1, 1, 1), lane("cpu:fp32", 4, 4, 4))), 3, 0)
    for answers, dollars, words, label in ((1e9, 100, "1,000,000,000", "$15B"), (0.4, 1e-9, "0.4", "$2e-07")):
        decided = Decided.by(asked(answers, gpu=dollars, cpu=dollars, min_agreement=0.0005), found)
        shown = view.view(decided.decision, decided.costs, "").replace("&#36;", "$")
        assert f"asked: {words}<" in shown and f">{label}<" in shown and "<dd>0.05 %</dd>" in shown


def test_what_a_model_or_a_visitor_wrote_is_no_markup():
    broken = lane("cpu:nf4", why_not=f"it was not measured: {EVIL}")
    server = lane("endpoint:vllm", 1.0, 1.0, 1.0, title=EVIL)
    found = Measured((), Gathered(EVIL, (server, broken, lane("cpu:fp32", 2.0, 2.0, 2.0)), (EVIL,)), 3, 0)
    decided = Decided.by(asked(prices={"endpoint:vllm": Price(0.5, EVIL), "cpu:fp32": Price(0.9, "typed")}), found)
    shown = view.view(decided.decision, decided.costs, found.words())
    assert "onerror" in shown and "<img" not in shown and "${" not in shown and "`" not in shown
    assert "<img" not in markdown(decided.decision) and "<img" not in view.refusal(EVIL) + view.note(EVIL)
