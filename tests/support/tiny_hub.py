"""A false Hub with one small model, and the ways to ask for it."""

from __future__ import annotations

import os

import pytest

from inference.errors import InferenceError
from inference.sources import hub
from tests.support.false_hub import FalseHub, Repository

NAME = "owner/tiny"
SMALL = {"config.json": b"{}", "tokenizer.json": b"{ }"}
WEIGHTS = os.urandom(200_000)
GATED, NO_REPO = {"X-Error-Code": "GatedRepo"}, {"X-Error-Code": "RepoNotFound"}


@pytest.fixture
def tiny_hub(false_hub) -> FalseHub:
    """A Hub that has one model, of two small files and its weights."""
    false_hub.repositories[NAME] = Repository({**SMALL, "model.safetensors": WEIGHTS})
    return false_hub


def fetch(name=NAME, revision=None, report=lambda _: None):
    return hub.fetch(name, revision, report).folder


def refusal(**asked) -> str:
    with pytest.raises(InferenceError) as raised:
        fetch(**asked)
    return str(raised.value)
