"""The step in C against the description's meaning in FP64 (`tests/support/reference.py`): every family, odd sizes, any cut of a prompt, any threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from inference.cpu import runner
from inference.cpu.library import Library
from inference.cpu.runner import Stepper
from inference.decode.sampling import NO_ID, greedy
from inference.errors import OutOfMemory
from inference.models import exact
from inference.parts.description import ModelParts, NotUnderstood
from inference.parts.reader import read_parts
from tests.support import families, reference
from tests.support.four_bit import four_bit_layer

CLOSE = 5e-12  # squared error over squared logits: FP32 rounding through the layers of a model
COUNT = 150  # past every window, and past a block of attention
CUTS = ([100] + [1] * 50, [1] * 5 + [95, 50], [COUNT], [2, 3, 5, 7, 11, 22, 99, 1])


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def ids_of(parts: ModelParts, count: int = COUNT) -> list[int]:
    return torch.randint(0, parts.head.rows, (count,), generator=torch.Generator().manual_seed(1)).tolist()


def error(found: torch.Tensor, truth: torch.Tensor) -> float:
    return float((found.double() - truth.detach()).square().sum() / truth.detach().square().sum())


def check(parts: ModelParts, library: Library, cuts: list[int]) -> None:
    ids = ids_of(parts, sum(cuts))
    truth, run, at = reference.logits(parts, ids), Stepper(parts, library).begin(len(ids)), 0
    for count in cuts:
        found = run.run(ids[at : at + count], at)
        at += count
        assert error(found, truth[at - 1]) < CLOSE and run.best == int(found.argmax())


@pytest.mark.parametrize("cuts", CUTS, ids=lambda cuts: f"{len(cuts)} pieces")
@pytest.mark.parametrize("name", families.FAST)
def test_every_family_s_logits_are_right_however_the_ids_are_cut(name: str, cuts: list[int], library: Library) -> None:
    torch.set_num_threads(2)
    check(read_parts(families.make(name)), library, cuts)


@pytest.mark.parametrize("threads", [1, 3, 5])
def test_any_number_of_threads_is_right_and_the_same_one_gives_the_same_bits(threads: int, library: Library) -> None:
    torch.set_num_threads(threads)
    parts = read_parts(families.make("gemma3"))
    check(parts, library, [40] + [1] * 9)
    ids, seen = ids_of(parts), []
    for _ in range(3):
        run = Stepper(parts, library).begin(COUNT)
        seen.append(torch.stack([run.run(ids[:100], 0), *(run.run([ids[at]], at) for at in range(100, 110))]))
    assert torch.equal(seen[0], seen[1]) and torch.equal(seen[0], seen[2])


def llama(**values: object) -> ModelParts:
    torch.manual_seed(0)
    config = AutoConfig.for_model("llama", **families.WIDE | {"tie_word_embeddings": False} | values)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval().requires_grad_(False)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.mul_(5)
    return read_parts(model)


@pytest.mark.parametrize(
    "sizes",
    [
        {"hidden_size": 80, "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 48, "vocab_size": 163, "intermediate_size": 112},
        {"hidden_size": 240, "num_attention_heads": 30, "num_key_value_heads": 1, "head_dim": 16},  # more heads in a group than go over the keys together
        {"hidden_size": 112, "num_attention_heads": 7, "num_key_value_heads": 7, "head_dim": 80, "num_hidden_layers": 1},
        {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 256, "hidden_size": 48},
        {"hidden_act": "gelu"},
    ],
    ids=str,
)
def test_odd_sizes_are_right(sizes: dict[str, object], library: Library) -> None:
    torch.set_num_threads(3)
    check(llama(**sizes), library, [37, 1, 1, 30, 1])


def test_a_prompt_of_several_blocks_is_right(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "BLOCK", 24)
    torch.set_num_threads(2)
    for count in (25, 49, 73):  # blocks of 13 and 12 rows, of 17 and 15, of 19 and 16
        check(read_parts(families.make("gemma3")), library, [count, 1, 30])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_matrices_of_16_bits_are_used_as_they_are(dtype: torch.dtype, library: Library) -> None:
    model = families.make("gemma2").to(dtype).float()
    exact.shrink(model)
    exact.install(model, lambda x, weight, bias: nn.functional.linear(x, weight.float(), bias))
    assert model.model.layers[0].mlp.up_proj.weight.dtype == dtype
    check(read_parts(model), library, [30, 1, 1, 20])


@pytest.mark.parametrize("nested", [False, True])
def test_matrices_of_4_bits_and_parts_of_them_are_right(nested: bool, library: Library) -> None:
    torch.manual_seed(0)
    sizes = families.SHORT | {"hidden_size": 64, "intermediate_size": 128}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model("phi3", **sizes), dtype=torch.float32).eval()
    for name, module in list(model.named_modules()):
        if "proj" in name:
            parent, _, own = name.rpartition(".")
            setattr(model.get_submodule(parent), own, four_bit_layer(module.weight.data * 5, nested=nested))
    parts = read_parts(model)
    assert parts.layers[0].up.first == 128 and parts.layers[0].up.state.nested == nested
    check(parts, library, [30, 1, 1, 20])


def test_an_embedding_that_nobody_knows_brings_its_rows(library: Library) -> None:
    class Own(nn.Embedding):
        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return super().forward(ids) * 2 + 1

    parts = read_parts(families.make("granite"))
    own = Own(*parts.embed.weight.shape)
    own.weight.data = parts.embed.weight.data
    check(replace(parts, embed=own), library, [30, 1, 1])


def test_what_was_not_written_is_not_read(library: Library) -> None:
    """Keys and values past a row, before its window, and all room to work in hold NaN before a run."""
    for name in ("gemma3", "llama"):
        parts = read_parts(families.make(name))
        ids, run = ids_of(parts), Stepper(parts, library).begin(400)
        for tensor in (run._keys, run._values, run._work):
            tensor.fill_(float("nan"))
        for start, end in ((0, 37), (37, 38), (38, 100), (100, 101)):
            assert torch.isfinite(run.run(ids[start:end], start)).all()
        run._values.view(len(parts.layers), parts.kv_heads, run.positions, parts.head_dim)[0, :, :64] = float("nan")
        seen = run.run(ids[101:102], 101)
        assert torch.isfinite(seen).all() == (name == "gemma3"), "before its window a layer reads nothing, without one all"


def test_a_step_ends_when_it_is_told_to_and_the_next_is_whole(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "ASK_S", 0.0)
    parts = read_parts(families.make("llama"))
    ids, stepper = ids_of(parts), Stepper(parts, library)
    run, told = stepper.begin(COUNT), []
    assert run.try_run(ids[:100], 0, lambda layers: told.append(layers) or len(told) < 2) is None and told == [1, 2]
    assert run.try_run(ids[100:101], 100, lambda layers: False) is None
    truth = reference.logits(parts, ids)
    assert error(run.run(ids, 0), truth[-1]) < CLOSE
    with pytest.raises(KeyError):
        run.try_run(ids, 0, lambda layers: {}["an error in the answer"])


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
def test_no_id_follows_from_logits_that_are_no_numbers(wrong: float, library: Library) -> None:
    torch.set_num_threads(3)
    parts = llama(vocab_size=163)
    run = Stepper(parts, library).begin(8)
    parts.head.module.bias = nn.Parameter(torch.zeros(163))
    parts.head.module.bias.data[slice(None) if wrong < 0 else 100] = wrong
    marked = Stepper(parts, library).begin(8)
    for each in (run, marked):
        assert each.run([5, 6], 0) is not None and each.best == int(greedy(each._logits[None]))
    assert run.best >= 0 and marked.best == NO_ID


def test_two_runs_at_once_are_as_right_as_one_after_the_other(library: Library) -> None:
    torch.set_num_threads(2)
    parts = read_parts(families.make("qwen3"))
    ids, stepper, found = ids_of(parts), Stepper(parts, library), {}

    def answer(which: int) -> None:
        torch.set_num_threads(2)
        run = stepper.begin(COUNT)
        found[which] = torch.stack([run.run(ids[: 50 + which], 0), *(run.run([ids[at]], at) for at in range(50 + which, 90))])

    for together in ([0, 1], [0], [1]):
        threads = [threading.Thread(target=answer, args=(which,)) for which in together]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if len(together) == 2:
            first = dict(found)
    assert all(torch.equal(first[which], found[which]) for which in (0, 1))


@pytest.mark.parametrize(("sizes", "why"), [({"head_dim": 24}, "heads of 24 columns"), ({"intermediate_size": 72}, "72 columns")])
def test_sizes_that_the_kernels_do_not_take_are_refused_in_a_sentence(sizes: dict[str, int], why: str, library: Library) -> None:
    with pytest.raises(NotUnderstood, match=why):
        Stepper(llama(**sizes), library)


def test_ids_that_are_none_and_positions_past_the_run_are_errors(library: Library) -> None:
    parts = read_parts(families.make("llama"))
    run = Stepper(parts, library).begin(10)
    for ids, start in (([parts.head.rows], 0), ([-1], 0), ([], 0), ([1], run.positions), ([1] * 2, run.positions - 1)):
        with pytest.raises(ValueError, match="not for this run"):
            run.run(ids, start)


def test_an_id_that_only_the_head_knows_is_an_error_and_reads_nothing(library: Library) -> None:
    parts = read_parts(families.make("llama"))
    run = Stepper(replace(parts, embed=nn.Embedding(100, parts.hidden)), library).begin(10)
    with pytest.raises(ValueError, match="not for this run"):
        run.run([100], 0)
    assert len(run.run([99], 0)) == parts.head.rows


def test_a_run_without_memory_is_told_as_such(library: Library) -> None:
    with pytest.raises(OutOfMemory, match="Shorten the prompt"):
        Stepper(read_parts(families.make("qwen2")), library).begin(2**45)


def test_of_equally_likely_ids_the_first_is_taken_whichever_thread_found_it(library: Library) -> None:
    torch.set_num_threads(2)
    model = families.make("llama")
    model.lm_head = nn.Linear(model.config.hidden_size, model.config.vocab_size, bias=False)
    model.lm_head.weight.data[:] = torch.ones(model.config.hidden_size)  # every id's logit is the same
    run = Stepper(read_parts(model), library).begin(64)
    for at in range(64):
        assert greedy(run.run([1], at)) == run.best == 0
