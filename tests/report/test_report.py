"""The report of records: everything is in it and in order, whole HTML that asks for nothing, a part a model, and the command line's flag."""

from __future__ import annotations

import re
from contextlib import nullcontext
from dataclasses import replace
from html.parser import HTMLParser

from inference.cli import main as command_line
from inference.cli import prompts as prompts_command
from inference.events import Request
from inference.host.child import ROOT
from inference.host.hardware import from_file
from inference.lanes import usual_title
from inference.progress import Progress
from inference.record.build import build_record
from inference.record.model import Row
from inference.record.scores import Figures, NoQuality, Quality
from inference.report.html import html_report
from inference.series.series import Series
from inference.space import files
from inference.space.asked import Asked, variables
from tests.support.records import ended, record_of, saying, status
from tests.support.scripted import ScriptedEngine
from ui.prompts.tab import in_format

VOID = {"meta", "rect", "line", "polyline", "br"}
DIED = Progress(0.0, "failed", "half", 3, prompt_ids=(1, 2), error="It died.", t_first_s=0.25, t_last_s=0.75)
SECTIONS = ["Who won", "Each lane's figures", "In pictures", "Quality", "All answers", "Conditions, versions, faults", "To repeat it"]
LONG = "word " * 5000 + "the end"


def asked(prompt: str, left: str, right: str, line: int = 0, expected: str | None = None):
    """A record of one prompt, answered by a 4-bit lane and the reference."""
    same = left == right
    record = record_of(cpu_nf4=saying(left, ids=(1, 2, 3) if same else (1, 2, 4)), cpu_fp32=saying(right))
    return replace(record, request=replace(record.request, prompt=prompt), row=Row(line, expected) if line else None)


SIX = [
    asked("may i see the menu", "We have dal.", "We have dal.", 2, "dal"),
    asked("two naan", "That is one naan.", "That is two naan.", 3, "two naan"),
    asked("a cola", "One cola.", "A drink.", 4, "cola"),
    asked("هل لديكم طعام نباتي؟", "نعم", "نعم", 5),
    asked("ご注文は?", "ダル。😀", "ダル。", 6),
    asked("a long one", LONG, LONG, 7),
]


class Page(HTMLParser):
    """What a report is made of; fails where an element is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open, self.seen, self.words = [], [], {}
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes) -> None:
        self.seen.append((tag, dict(attributes), list(self.open)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes) -> None:
        self.seen.append((tag, dict(attributes), list(self.open)))

    def handle_endtag(self, tag) -> None:
        assert tag in VOID or self.open.pop() == tag, tag

    def handle_data(self, data) -> None:
        if self.open:
            self.words.setdefault(self.open[-1], []).append(data)

    def all(self, *tags: str) -> list[dict]:
        return [attributes for tag, attributes, _ in self.seen if tag in tags]


def test_every_section_is_there_in_order_and_every_answer_whole():
    text = html_report(SIX)
    page = Page(text)
    assert page.words["h2"] == SECTIONS and len(page.all("h1")) == 1
    for record in SIX:
        for part in (record.request.prompt, *(lane.shown_run.text for lane in record.lanes.values())):
            assert part in text or all(piece in text for piece in part.split()), part
    assert text.count(LONG) == 2, "an answer that is long is whole"


def test_each_text_of_a_visitor_or_a_model_has_its_own_direction():
    page = Page(html_report(SIX))
    said = [attributes for tag, attributes, _ in page.seen if tag == "blockquote" or attributes.get("class") == "said"]
    assert len(said) == 3 * len(SIX) and {attributes.get("dir") for attributes in said} == {"auto"}


def test_it_is_whole_html_that_asks_for_nothing_and_allows_no_script():
    for records in (SIX, SIX[:1], [], [record_of(cuda_nf4=ended(20), cuda_bf16=ended(9), cpu_fp32=DIED)]):
        page = Page(html_report(records))
        ids = [attributes["id"] for _, attributes, _ in page.seen if "id" in attributes]
        assert len(ids) == len(set(ids)) and not page.all("script", "img", "link", "iframe", "object", "form", "base")
        policy = next(each["content"] for each in page.all("meta") if each.get("http-equiv") == "Content-Security-Policy")
        assert "default-src 'none'" in policy and "script" not in policy and "unsafe" not in policy
        for _, attributes, _ in page.seen:
            assert not any(name.startswith("on") or name in ("src", "style", "srcset", "action", "xlink:href") for name in attributes)
            assert "href" not in attributes or attributes["href"].removeprefix("#") in ids
        assert "@import" not in page.words["style"][0] and "url(" not in page.words["style"][0]


def test_headings_and_table_heads_say_what_they_are_of():
    page = Page(html_report(SIX))
    assert all(attributes.get("scope") in ("col", "row", "rowgroup") for attributes in page.all("th")) and all(
        attributes.get("aria-label") for attributes in page.all("table")
    )
    sections = [index for index, (tag, _, _) in enumerate(page.seen) if tag in ("section", "article")]
    assert all(page.seen[index + 1][0] in ("h2", "h3") for index in sections)
    assert all(attributes.get("aria-hidden") == "true" for attributes in page.all("svg"))


def test_what_flipped_and_what_differs_is_marked():
    text = html_report(SIX)
    assert 'Right to wrong: <a href="#prompt-1-2">prompt 2</a>. Wrong to right: <a href="#prompt-1-3">prompt 3</a>.' in text
    assert text.count("Flipped: right in the reference, wrong here") == 1 and text.count("Flipped: wrong in the reference, right here") == 1
    assert "That is <mark>one</mark> naan." in text and "That is <mark>two</mark> naan." in text
    assert "✓ Holds what is expected" in text and "4-bit NF4 on the CPU and FP32 on the CPU gave the same answer to 3 of 6 prompts." in text


def test_answers_are_held_against_bf16_where_that_is_the_reference():
    record = replace(record_of(cuda_nf4=saying("one naan", ids=(1, 2, 4)), cuda_bf16=saying("two naan")), row=Row(1, "two naan"))
    record = replace(record, lanes={**record.lanes, "cuda:bf16": replace(record.lanes["cuda:bf16"], precision="BF16")})
    text = html_report([record, record])
    assert "4-bit NF4 on the GPU and BF16 on the GPU gave the same answer to 0 of 2 prompts." in text
    assert "BF16 on the GPU holds it in 2, 4-bit NF4 on the GPU in 0." in text and text.count("Flipped: right in the reference, wrong here") == 2


def test_figures_are_medians_over_all_prompts_with_their_range():
    fast = [record_of(cpu_nf4=ended(tps), cpu_fp32=ended(10)) for tps in (20, 40, 60)]
    text = html_report(fast)
    assert "40.0 tok/s (20.0 tok/s - 60.0 tok/s, n 3)" in text and "4-bit writes 4.0× faster" in text
    assert re.search(r'class="fill" width="66.67%"', text) and re.search(r'class="range" x1="33.33%" x2="100.00%"', text)
    assert "Medians over 3 prompts" in text and "Of one run each" in html_report(fast[:1])


def test_the_command_repeats_it_and_the_file_is_given_with_it():
    text = html_report(SIX)
    assert "compare --prompts=prompts.jsonl --lanes cpu:nf4,cpu:fp32 --max-new-tokens" in text
    assert "{&#34;prompt&#34;: &#34;two naan&#34;, &#34;expected&#34;: &#34;two naan&#34;}" in text
    assert "compare &#39;--prompt=two naan&#39; --lanes" in html_report(SIX[1:2])


def test_faults_are_told_with_their_prompts_and_nothing_fails_without_figures():
    text = html_report([*SIX[:2], record_of(cpu_nf4=ended(5), cpu_fp32=DIED)])
    assert "FP32 on the CPU: It died. (prompt 3)" in text and '<p class="broken">It died.</p>' in text
    assert "None: every lane answered, at its fastest and alone." in html_report(SIX)
    assert "No winner" in html_report([record_of(cpu_nf4=DIED, cpu_fp32=DIED)]) and "Nothing was measured" in html_report([])


def test_records_of_two_models_are_parts_of_their_own_with_places_of_their_own():
    other = [replace(record, model=replace(record.model, id="you/other")) for record in SIX[:2]]
    page = Page(html_report([*SIX, *other]))
    assert [heading for heading in page.words["h2"] if heading not in SECTIONS] == [
        f"{model}: 4-bit NF4 on the CPU, FP32 on the CPU" for model in ("1. fake/model", "2. you/other")
    ]
    assert page.words["h1"] == ["fake/model, you/other"] and sum("id" in each for each in page.all("article")) == 8


def scored(agreement: float, positions: int, other: str = "cpu:nf4") -> Quality:
    figures = Figures(positions, 0.02, 0.01, 0.01, 0.2, 0.3, agreement, 0.01, 5.0, 5.1, 1.02, 0.01)
    return Quality(figures, "cpu:fp32", other, "answer", 12, 1000, {other: figures})


def test_quality_is_told_of_one_of_several_together_or_why_not():
    one = html_report([replace(SIX[0], quality=scored(0.9, 50))])
    assert "same first choice as FP32 at 90 % of 50 positions" in one and "too few for a verdict" in one and "For scale" in one
    two = html_report(
        [replace(SIX[0], quality=scored(0.9, 100)), replace(SIX[1], quality=scored(0.8, 300)), replace(SIX[2], quality=NoQuality("Too <short>."))]
    )
    assert "at 82 % of 400 positions in 2 answers (mean divergence 0.02 nat, perplexity ratio 1.02)" in two and "Not in it: Too &lt;short&gt;." in two
    assert "python -m inference quality" in html_report(SIX)


def test_quality_of_a_file_of_its_own_speaks_of_lanes_that_a_record_has_not():
    alone = [record_of(cpu_nf4=ended(20)), record_of(cpu_fp32=ended(5))]
    text = html_report(alone, scored=[scored(0.9, 300)])
    assert text.count("4-bit NF4 on the CPU against FP32 on the CPU, on the answer: 300 positions.") == 1
    two = html_report([alone[1], alone[1]], scored=[scored(0.9, 100, "cuda:nf4"), scored(0.8, 300, "cuda:nf4")])
    assert "4-bit NF4 on the GPU makes the same first choice as the reference at 82 % of 400 positions" in two and ">Measurement</th>" in two
    assert [usual_title(name) for name in ("auto:nf4", "endpoint:vllm", "<none>")] == ["4-bit NF4", "vllm", "<none>"]


def test_lanes_that_were_each_measured_alone_share_one_section_of_quality_and_one_prompt():
    alone = [record_of(cpu_nf4=ended(20)), record_of(cpu_fp32=ended(5))]
    page, other = Page(html_report(alone)), replace(alone[1], model=replace(alone[1].model, id="you/other"))
    assert page.words["h2"].count("Quality") == 1 and html_report(alone).count("Not measured in these runs.") == 1
    assert [words for words in page.words["h2"] if "fake/model" in words] == ["1. fake/model: 4-bit NF4 on the CPU", "2. fake/model: FP32 on the CPU"]
    assert "1 prompt, measured" in html_report(alone) and "from 1 prompt (" in html_report(alone)
    assert "2 prompts, measured" in html_report([alone[0], alone[0]]), "asked twice"
    assert html_report([alone[0], other]).count("Not measured in these runs.") == 2, "of two models each has its own"
    assert Page(html_report([alone[0], replace(alone[1], quality=scored(0.9, 300))])).words["h2"].count("Quality") == 2, "a part's own stands under it"


def test_two_files_of_quality_are_both_told_beside_a_single_prompt():
    text = html_report([record_of(cpu_nf4=ended(20), cpu_fp32=ended(5))], scored=[scored(0.9, 100), scored(0.8, 300)])
    assert "at 82 % of 400 positions in 2 measurements" in text and '<th scope="row">2</th>' in text


def test_quality_without_figures_is_left_out():
    alone = [record_of(cpu_nf4=ended(20), cpu_fp32=ended(5))]
    nothing = [scored(float("nan"), 300), scored(0.9, 0)]
    assert "Not measured in these runs." in html_report(alone, scored=nothing) and "Not measured" in html_report([replace(alone[0], quality=nothing[0])])
    assert "same first choice as FP32 at 80 % of 300 positions" in html_report(alone, scored=[*nothing, scored(0.8, 300)])


def test_three_lanes_stand_in_order_each_in_its_colour():
    four = {"cuda_nf4": ended(100), "cuda_bf16": ended(200), "cpu_nf4": ended(20), "cpu_fp32": ended(10)}
    text = html_report([record_of(**four), record_of(**four)])
    assert re.findall(r'<th scope="row" class="(of-[\w-]+)">', text) == ["of-bf16", "of-4bit", "of-4bit-cpu", "of-fp32"]
    assert "2 of 2 the same" in text and "the reference" in text


def test_its_files_are_among_those_that_a_space_gets():
    uploaded = {file.path for file in files.collect(ROOT, Asked("you/demo", from_file().named("t4-small"), "menu", variables([], "menu", None)))}
    assert {f"inference/report/{path.name}" for path in (ROOT / "inference" / "report").iterdir() if path.is_file()} <= uploaded


def test_the_page_gives_a_file_of_prompts_as_a_report():
    assert in_format(Series([], records=list(SIX)), "report") == html_report(SIX)


def test_the_time_is_that_of_the_records_in_utc_and_none_where_a_file_says_none():
    at = [replace(SIX[0], created=created) for created in ("2026-11-30T01:05:00+02:00", "2026-11-29T22:00:00+00:00", "2026-12-01T00:00:00+00:00", "no time")]
    assert "1 prompt, measured 29 November 2026, 23:05 UTC" in html_report(at[:1])
    assert "measured 29 November 2026, 22:00 to 23:05 UTC" in html_report(at[:2])
    assert "measured 29 November 2026, 22:00 to 1 December 2026, 00:00 UTC" in html_report(at) and "measured" not in Page(html_report(at[3:])).words["p"][1]


def test_the_command_writes_it_of_one_prompt(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(command_line, "Engine", ScriptedEngine)
    monkeypatch.setenv("HF_TOKEN", "hf_very_secret")
    assert command_line.main(["compare", "hello you", "--report", str(tmp_path / "r.html")]) == 0
    text = (tmp_path / "r.html").read_text("utf-8")
    assert "hello you" in text and "10.0 tok/s" in text and "hf_very_secret" not in text
    assert Page(text).words["h2"][0] == "Who won" and capsys.readouterr().out


def test_the_command_writes_it_of_a_file_of_prompts(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(prompts_command, "Engine", lambda settings: nullcontext())
    monkeypatch.setattr(Series, "run", lambda series, *_: series.records.extend(SIX) or iter(SIX))
    (tmp_path / "p.txt").write_text("hello", "utf-8")
    assert command_line.main(["compare", "--prompts", str(tmp_path / "p.txt"), "--report", str(tmp_path / "r.html")]) == 0
    assert (tmp_path / "r.html").read_text("utf-8") == html_report(SIX) and capsys.readouterr().out


def test_of_a_server_it_is_not_said_that_it_was_alone_and_a_cut_without_a_count_is_a_cut():
    served = replace(ended(30, reason="length"), n=0)
    served = replace(served, done=replace(served.done, token_ids=(), new_tokens=None, alone=None))
    lane = replace(status("endpoint:x"), title="vLLM", load=None)
    text = html_report([build_record([lane, status("cpu:fp32")], Request("hi"), "in-turn", {"endpoint:x": [served], "cpu:fp32": [ended(5)]})])
    assert "None: every lane answered, those that run here at their fastest and alone." in text
    assert "Cut at the token limit" in text and "Cut at tokens not counted" not in text and ", tokens not counted, first after" in text


def test_what_is_not_known_of_a_card_is_no_none():
    record = record_of(cuda_nf4=ended(20), cpu_fp32=ended(5))
    text = html_report([replace(record, environment=replace(record.environment, gpu="NVIDIA L4", driver=None))])
    assert "NVIDIA L4, n/a, driver n/a" in text


def test_medians_are_of_the_runs_that_count_and_the_race_is_of_the_last():
    stopped = ended(5, reason="stopped")
    whole, some, one = (html_report([record_of(cpu_nf4=[ended(9)] * len(runs), cpu_fp32=runs)]) for runs in ([ended(5)] * 3, [ended(5), stopped], [ended(5)]))
    assert "Medians of 3 runs after a warm-up" in whole and "Of several runs it is the last that counts." in whole
    assert "Medians of the runs that came to their end, of 2 after a warm-up" in some and "several runs" not in one


def test_repeats_of_unlike_lengths_have_all_of_them_beside_their_medians():
    text = html_report([record_of(cpu_nf4=[ended(9), ended(9, ids=(1, 2))], cpu_fp32=[ended(5)] * 2)])
    assert "3 tokens or 2 tokens</span>" in text and '<span class="whole">3 tokens</span>' in text


def test_the_race_is_of_a_prompt_that_was_answered():
    failed = [record_of(cpu_nf4=DIED, cpu_fp32=DIED)] * 2
    assert "Prompt 3, whose time is the middle one of 1." in html_report([*failed, record_of(cpu_nf4=ended(5), cpu_fp32=ended(9))])
