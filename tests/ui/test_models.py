"""Who may choose which model, and what a tab is told of a change, without a browser."""

from __future__ import annotations

from types import SimpleNamespace

import gradio as gr
import pytest

from inference.errors import InferenceError, WrongArguments
from inference.events import Loading
from inference.settings import DEFAULT_MODEL, Settings
from inference.status import ModelStatus
from tests.support.fakes import Stage
from tests.support.records import ended
from ui.comparison.handlers import IDLE_LOOK_S, LOOK_S, Page
from ui.comparison.model_box import ModelBox
from ui.comparison.models import Models, line, said
from ui.fork.viewer import ForkViewer

VISITOR = SimpleNamespace(session_hash="tab")
SPACE = {"SPACE_ID": "you/space"}
LISTED = Settings(models=("you/a", "./b"))


@pytest.mark.parametrize("settings", [Settings(), Settings(host="0.0.0.0"), Settings(share=True, auth="a:b"), Settings(models=("you/a",))])
def test_on_one_s_own_page_any_name_may_be_typed(settings):
    models = Models(settings, {})
    assert models.changeable and models.open
    assert [models.check(f" {name} ") for name in ("you/x@main", "./folder", "/a b/über.gguf")] == ["you/x@main", "./folder", "/a b/über.gguf"]


@pytest.mark.parametrize(("settings", "environ"), [(Settings(models=LISTED.models), SPACE), (Settings(models=LISTED.models, share=True), {})])
def test_where_strangers_come_only_the_list_and_the_first_model_may_be_chosen(settings, environ):
    models = Models(settings, environ)
    models.note("you/a")
    assert models.changeable and models.names() == ["you/a", "./b", settings.model_id]
    assert models.check("./b") == "./b" and models.check(settings.model_id) == settings.model_id
    for name in ("you/typed", "you/a@other", "/etc", "shape:gemma-3-4b", "YOU/A"):
        with pytest.raises(WrongArguments, match="can't be chosen here. Choose one of: you/a, ./b, "):
            models.check(name)


@pytest.mark.parametrize(("settings", "environ"), [(Settings(), SPACE), (Settings(share=True), {})])
def test_where_strangers_come_and_nothing_is_listed_nothing_may_be_chosen(settings, environ):
    models = Models(settings, environ)
    assert not models.changeable and models.shown(ModelStatus("x", 0), []) == []
    with pytest.raises(WrongArguments, match="can't be chosen here"):
        models.check("you/typed")


@pytest.mark.parametrize("name", ["", "  ", None, 5, "a\nb", "a\0b", "\udcff", "x" * 1001])
def test_what_is_no_name_is_refused(name):
    with pytest.raises(WrongArguments, match="Name a model first|no model's name"):
        Models(Settings(), {}).check(name)


def test_what_was_used_can_be_chosen_again_the_latest_first():
    models = Models(Settings(model_id="you/start", models=("you/a",)), {})
    for name in ("you/x", "you/y", "you/x"):
        models.note(name)
    assert models.names() == ["you/a", "you/start", DEFAULT_MODEL, "you/x", "you/y"]


def test_a_model_s_name_is_read_as_code_by_nothing():
    model = ModelStatus("<b>${1}`", 1, "failed", "{{x}}")
    assert not set("<>${}`") & set(said(model, []).removeprefix('<p role="alert" class="said">').removesuffix("</p>"))
    assert line(model) == "Model: <b>${1}` · could not be loaded"


# ---- the box


@pytest.fixture
def stage():
    stage = Stage(LISTED)
    stage.lanes["auto:nf4"].ready()
    yield stage
    stage.engine.close()


def box_of(stage, monkeypatch, **environ) -> ModelBox:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with gr.Blocks():
        return ModelBox(Page(stage.engine, lambda: None))


def test_a_name_that_is_not_listed_is_refused_by_the_server(stage, monkeypatch):
    box = box_of(stage, monkeypatch, **SPACE)
    refused, choice = box.load_model("you/typed")
    assert "can&#x27;t be chosen here" in refused.value and choice == gr.skip() and stage.engine.model().number == 0
    allowed, choice = box.load_model("./b")
    assert not allowed.value and choice.value == "./b" == stage.engine.model().name == stage.started_with.model_id


def test_a_refusal_of_the_engine_is_a_sentence_in_the_box(stage, monkeypatch):
    box = box_of(stage, monkeypatch)
    stage.ask()
    assert "2 runs under way or waiting" in box.load_model("you/typed")[0].value
    assert "nothing to cancel" in box.cancel_model()[0].value and stage.engine.model().number == 0


def test_a_tab_looks_often_while_a_lane_loads_and_seldom_after(stage, monkeypatch):
    box = box_of(stage, monkeypatch)
    timer = box.page.watch(VISITOR)[-1]
    assert (timer.value, timer.active) == (IDLE_LOOK_S, True)
    box.load_model("you/typed")
    stage.lanes["auto:nf4"].emit(Loading("downloading", 2**20, 2**30, "bytes"))
    *_, shown, progress, load, cancel, timer = box.page.watch(VISITOR)
    assert (timer.value, timer.active) == (LOOK_S, True)
    assert shown.label == "Model: you/typed · loading" and "1.0 MiB of 1.00 GiB" in progress.value
    assert not load.interactive and cancel.visible


def test_a_tab_does_not_look_while_its_own_run_is_measured(stage, monkeypatch):
    page = box_of(stage, monkeypatch).page
    page.start()
    accepted = page.press("hi", "", "chat", 3, 0, 0, "together", VISITOR, gr.EventData(None, None))
    assert [each.active for each in accepted if isinstance(each, gr.Timer)] == [False]
    session = page.sessions.get("tab")
    page.sessions.ended("tab", session, "cpu:fp32", ended(5))
    stage.lanes["cpu:fp32"].ready()
    assert page.lanes[1].finish(VISITOR)[-1] == gr.skip()
    page.sessions.ended("tab", session, "auto:nf4", ended(5))
    assert page.lanes[0].finish(VISITOR)[-1].active


# ---- a comparison of the model before


@pytest.fixture
def answered(stage):
    """A page whose tab has a comparison, of which every run has ended and no record is made yet."""
    page = Page(stage.engine, lambda: None)
    session = page.sessions.begin("tab", lambda: stage.ask("together"))
    stage.lanes["cpu:fp32"].ready()
    for lane in stage.lanes.values():
        lane.begin()
        lane.finish()
    for key in session.comparison.runs:
        page.sessions.ended("tab", session, key, ended(5))
    return page


def test_a_record_made_after_the_change_is_of_the_model_that_answered(stage, answered, monkeypatch):
    monkeypatch.setenv("FAKE_MODEL", "you/next")
    stage.engine.change_model("you/next")
    stage.lanes["auto:nf4"].ready()
    record = answered.latest("tab")
    assert record.model.id == "fake/model" and [lane.available for lane in record.lanes.values()] == [True, True]
    assert {lane.model_id for lane in record.lanes.values()} == {"fake/model"}


def test_what_one_model_wrote_is_not_scored_by_another(stage, answered):
    with gr.Blocks():
        viewer = ForkViewer(answered)
    stage.engine.change_model("you/next")
    *_, (_, _, _, shown) = viewer.show(VISITOR)
    assert "The model was changed after this comparison" in shown.value and len(stage.lanes["auto:nf4"].sent) == 1


def test_while_a_scoring_goes_on_the_model_is_not_changed(stage, answered, monkeypatch):
    tried = []

    def score(*_, **__):
        with pytest.raises(InferenceError, match="a scoring goes on"):
            stage.engine.change_model("you/next")
        tried.append(True)
        raise InferenceError("It could not be scored.")

    monkeypatch.setattr("ui.fork.viewer.one_answer", score)
    with gr.Blocks():
        list(ForkViewer(answered).show(VISITOR))
    assert tried == [True]
