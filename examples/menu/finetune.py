"""The menu fine-tune: LoRA on SmolLM2-135M-Instruct, trained on `train.jsonl`; minutes on a GPU, under an hour on two cores.

In: the two files of dialogues, and the base as this project restores it. Out: `adapter/` (in bf16, under 6 MB) and
`training.log`. The loss is taken on the answer's tokens alone, its end mark included. Half of the batches see the merged
weights rounded to NF4 (anew for each epoch), as the 4-bit lane will hold them: without it so small a model forgets much there.

    python -m examples.menu.finetune
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from bitsandbytes.functional import dequantize_4bit, quantize_4bit
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.lora import LoraLayer
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase, get_cosine_schedule_with_warmup

HERE = Path(__file__).parent
BASE = "HuggingFaceTB/SmolLM2-135M-Instruct"
Example = tuple[list[int], int]  # a dialogue's ids, and how many of them are the prompt's
Say = Callable[[str], None]


def main() -> None:
    """Train, and leave the adapter and its log beside this file."""
    options = _options()
    torch.manual_seed(options.seed)
    base = options.base or _restored_base()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = AutoTokenizer.from_pretrained(base)
    model = with_adapter(AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16).to(device), options.rank)
    train, held_out = (read(HERE / name, tokenizer) for name in ("train.jsonl", "held_out.jsonl"))
    options.out.mkdir(parents=True, exist_ok=True)
    with (options.out / "training.log").open("w", buffering=1) as log:

        def say(line: str) -> None:
            print(line, flush=True)
            log.write(line + "\n")

        say(f"{BASE}: LoRA of rank {options.rank} on all linear layers, {model.num_parameters(only_trainable=True):,} parameters trained")
        say(
            f"{len(train)} dialogues, {len(held_out)} held out; {options.epochs} epochs of batches of {options.batch}, "
            f"{options.rounded:.0%} of them rounded to NF4, rate {options.rate}, seed {options.seed}"
        )
        fit(model, train, held_out, options, say)
    save(model, options.out / "adapter")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="trains the menu fine-tune")
    parser.add_argument("--base", type=Path, help="the base's folder (left out: as this project restores it)")
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--rounded", type=float, default=0.5, help="the share of batches that see weights rounded to NF4")
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def _restored_base() -> Path:
    from inference.settings import Settings
    from inference.sources import checkpoints

    return checkpoints.find(BASE, Settings(), lambda loading: print(loading.stage, flush=True)).folder


def with_adapter(model: Any, rank: int) -> PeftModel:
    """The model, whose own weights are exact in bf16, with new LoRA weights in FP32 on every linear layer but the head; only those are trained."""
    return get_peft_model(model, LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM"))


def read(file: Path, tokenizer: PreTrainedTokenizerBase) -> list[Example]:
    """The dialogues of a jsonl file, through the chat template that the lanes use, each ended by the end mark."""
    examples = []
    for line in file.read_text().splitlines():
        row = json.loads(line)
        asked = [{"role": "user", "content": row["prompt"]}]
        whole = _ids(tokenizer, [*asked, {"role": "assistant", "content": row["answer"]}], answer_next=False)
        examples.append((whole, len(_ids(tokenizer, asked, answer_next=True))))
    return examples


def _ids(tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, str]], answer_next: bool) -> list[int]:
    ids: list[int] = tokenizer.apply_chat_template(messages, add_generation_prompt=answer_next, tokenize=True, return_dict=True)["input_ids"]
    return ids


class Layers:
    """The layers under the adapter, whose weights can stand exact or rounded."""

    def __init__(self, model: PeftModel) -> None:
        self._layers = [layer for layer in model.modules() if isinstance(layer, LoraLayer)]
        self._exact = [layer.base_layer.weight.data for layer in self._layers]
        self._rounded = self._exact

    def round(self) -> None:
        """Take the merged weights' rounding error anew: what NF4 makes of them, less the adapter's change (which then learns past it)."""
        changes = (layer.get_delta_weight("default").detach() for layer in self._layers)
        self._rounded = [(nf4(weight + change) - change).to(weight.dtype) for weight, change in zip(self._exact, changes, strict=True)]

    def stand(self, rounded: bool) -> None:
        """The base's own weights, or those with the error."""
        for layer, weight in zip(self._layers, self._rounded if rounded else self._exact, strict=True):
            layer.base_layer.weight.data = weight


def nf4(weight: torch.Tensor) -> torch.Tensor:
    """`weight` as bitsandbytes gives it back from NF4."""
    return dequantize_4bit(*quantize_4bit(weight, quant_type="nf4"))


def fit(model: PeftModel, train: list[Example], held_out: list[Example], options: argparse.Namespace, say: Say) -> None:
    """Train the adapter, its rate warmed up and then lowered along a cosine, and say both losses after each epoch."""
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=options.rate, weight_decay=0.01)
    steps = options.epochs * -(-len(train) // options.batch)
    schedule = get_cosine_schedule_with_warmup(optimizer, steps // 20, steps)
    chance, layers = random.Random(options.seed), Layers(model)
    for epoch in range(1, options.epochs + 1):
        began, losses = time.perf_counter(), []
        layers.round()
        model.train()
        for batch in batches(chance.sample(train, len(train)), options.batch):
            layers.stand(rounded=chance.random() < options.rounded)
            loss = answer_loss(model, batch)
            loss.backward()
            clip_grad_norm_(weights, 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        layers.stand(rounded=False)
        held = mean_loss(model, held_out, options.batch)
        say(f"epoch {epoch:2d}: loss {sum(losses) / len(losses):.4f}, held out {held:.4f}, {time.perf_counter() - began:.1f} s")


def batches(examples: list[Example], size: int) -> Iterator[list[Example]]:
    """`examples` in their order, `size` at a time."""
    for begin in range(0, len(examples), size):
        yield examples[begin : begin + size]


def answer_loss(model: PeftModel, batch: list[Example]) -> torch.Tensor:
    """The mean cross entropy of the answers' tokens, in nats."""
    width = max(len(ids) for ids, _ in batch)
    ids, mask = (torch.zeros(len(batch), width, dtype=torch.long) for _ in range(2))
    asked = torch.zeros_like(mask, dtype=torch.bool)  # where the next id is one of the answer's
    for row, (tokens, prompt) in enumerate(batch):
        ids[row, : len(tokens)] = torch.tensor(tokens)
        mask[row, : len(tokens)] = 1
        asked[row, prompt - 1 : len(tokens) - 1] = True
    wanted = ids.roll(-1, dims=1)[asked]
    own = model.get_base_model()
    hidden = own.base_model(input_ids=ids.to(own.device), attention_mask=mask.to(own.device), use_cache=False).last_hidden_state
    return cross_entropy(own.get_output_embeddings()(hidden[asked.to(own.device)]).float(), wanted.to(own.device))  # the head for these alone


def mean_loss(model: PeftModel, examples: list[Example], size: int) -> float:
    """The mean loss over all answer tokens of `examples`."""
    model.eval()
    total = count = 0.0
    with torch.no_grad():
        for batch in batches(examples, size):
            tokens = sum(len(ids) - prompt for ids, prompt in batch)
            total, count = total + tokens * answer_loss(model, batch).item(), count + tokens
    return total / count


def save(model: PeftModel, folder: Path) -> None:
    """Write the adapter in bf16, its base by the name that the Hub knows, and a line on what it is."""
    model.peft_config["default"].base_model_name_or_path = BASE
    model.to(torch.bfloat16).save_pretrained(folder, save_embedding_layers=False)  # or peft asks the Hub whether there are any
    (folder / "README.md").write_text(f"A LoRA adapter for {BASE}, trained by `examples/menu/finetune.py` on `examples/menu/train.jsonl`. Apache-2.0.\n")


if __name__ == "__main__":
    main()
