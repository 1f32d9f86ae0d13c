"""What may be written after `python -m inference`: every command's options, each with its default, a sentence and an example.

In: nothing. Out: a parser; `main.py` gives it the commands. A fault of the arguments is a WrongArguments with one sentence.
"""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

from inference import terminal
from inference.errors import WrongArguments
from inference.events import FORMATS, MODES

PROGRAM = "python -m inference"
DEFAULT_PROMPT = "hello good morning may i see the menu"
PEERS = ("bf16", "static-compile", "llama.cpp")
NAMES_OF_FILES = ("json", "csv", "markdown", "report", "prompts", "text", "load", "records")
EXITS = "exit codes: 0 done, 1 something could not be done, 2 wrong arguments or settings, 130 stopped"


class Parser(argparse.ArgumentParser):
    """A parser whose faults are told like all others; its help keeps the lines of the examples."""

    def __init__(self, prog: str, description: str, usage: str, examples: tuple[str, ...] = ()) -> None:
        lines = "\n".join(["examples:", *(f"  {example}".rstrip() for example in examples), "", EXITS])
        told = terminal.wrapped(description, terminal.width() - 2)
        super().__init__(prog, f"%(prog)s {usage}", told, lines, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """One sentence, and where to read on."""
        raise WrongArguments(f"{message[:1].upper()}{message[1:].rstrip('.')}. See {self.prog} --help.")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The options of the command that was asked for, its name in `command`; raises WrongArguments."""
    options, rest = make().parse_known_args(arguments)
    if rest:
        if options.command == "deploy":  # a secret may be among them
            rest = [part.partition("=")[0] + "=***" if "=" in part else part for part in rest]
        quotes = " A prompt of several words stands in quotes." if options.command == "compare" and not rest[0].startswith("-") else ""
        raise WrongArguments(f"Unrecognized arguments: {' '.join(rest)}.{quotes} See {PROGRAM} {options.command} --help.")
    for name, value in vars(options).items():  # "$OUT" where that is not set: what was measured would be lost
        if name in NAMES_OF_FILES and (value == "" or (isinstance(value, list) and "" in value)):
            raise WrongArguments(f"{'A record' if name == 'records' else f'--{name}'} has no file's name. Name the file, or leave it out.")
    return options


def make() -> Parser:
    """The parser of all commands."""
    parser = Parser(
        prog=PROGRAM, description="The same model in 4 bits and in full precision: one prompt, both answers, measured.",
        usage="COMMAND ...", examples=(f'{PROGRAM} compare "{DEFAULT_PROMPT}"', f"{PROGRAM} doctor", f"{PROGRAM} COMMAND --help"),
    )  # fmt: skip
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command", prog=PROGRAM)
    for add in (_compare, _bench, _quality, _doctor, _deploy):
        _common(add(commands), "the model that menu was tuned from; with --clients menu itself" if add is _bench else "menu, the packaged one")
    _decide(commands).set_defaults(model=None, lanes=None, verbose=False)  # it starts no lane
    return parser


def _command(commands: Any, name: str, words: str, description: str, usage: str, *examples: str) -> Parser:
    given = tuple(f"{PROGRAM} {name} {example}" for example in examples)
    parser: Parser = commands.add_parser(name, help=words, description=description, usage=usage, examples=given)
    return parser


def _common(command: Parser, default: str) -> None:
    command.add_argument("--model", help=f"Hub id, folder, .gguf file or shape:NAME (default: the variable MODEL_ID, else {default})")
    command.add_argument("--lanes", help="which to run, separated by commas, such as cuda:nf4,cpu:fp32 (default: the variable LANES, else auto:nf4,cpu:fp32)")
    command.add_argument("-v", "--verbose", action="store_true", help="show the log of the lanes and of their libraries (default: faults only)")


def _compare(commands: Any) -> Parser:
    one = _command(
        commands, "compare", "one prompt, or a file of prompts, answered by each lane",
        "Answer one prompt, or a file of prompts, by each lane; print who won, the answers and their figures.",
        "PROMPT [options]",
        f'"{DEFAULT_PROMPT}"', '"hello" --lanes cuda:nf4,cuda:bf16,cpu:fp32 --repeats 5', '"hello" --markdown card.md', "--prompts orders.jsonl --csv rows.csv",
        "--prompts orders.jsonl --report report.html",
    )  # fmt: skip
    one.add_argument("words", nargs="?", metavar="PROMPT", help="the prompt, in quotes (or --prompt, or --prompts)")
    one.add_argument("--prompt", help="the prompt; the same as giving it without --prompt")
    one.add_argument("--prompts", metavar="FILE", help="txt (a prompt a line), csv or jsonl with `prompt` and optional `expected`; Ctrl+C keeps what is done")
    one.add_argument("--system", default="", help="system prompt (default: none)")
    one.add_argument("--format", choices=FORMATS, default="chat", help="by the model's chat template, or the prompt as it is (default: %(default)s)")
    one.add_argument("--max-new-tokens", type=int, default=50, metavar="N", help="where an answer is cut (default: %(default)s)")
    one.add_argument("--temperature", type=float, default=0.0, metavar="T", help="0 takes the likeliest token each time, up to 2 (default: %(default)s)")
    one.add_argument("--seed", type=int, default=0, metavar="N", help="for a temperature above 0 (default: %(default)s)")
    one.add_argument("--mode", choices=MODES, default="auto", help="auto: in turn where two lanes share a device, else together (default: %(default)s)")
    one.add_argument("--repeats", type=int, default=1, metavar="N", help="runs of each lane; above 1 a warm-up goes before, not counted (default: %(default)s)")
    one.add_argument("--quality", action="store_true", help="also score the full-precision answer with every lane (default: no)")
    one.add_argument("--full", action="store_true", help="print every row of the table and the summary (default: six rows)")
    one.add_argument("--json", metavar="FILE", help="write the whole record to FILE; - for stdout, and then nothing else (default: no)")
    one.add_argument("--csv", metavar="FILE", help="write one row for each run to FILE (default: no)")
    one.add_argument("--markdown", metavar="FILE", help="write the table and the code to FILE, ready for a model card (default: no)")
    one.add_argument("--report", metavar="FILE", help="write a report to FILE, an HTML page to open and to print, complete without a network (default: no)")
    return one


def _bench(commands: Any) -> Parser:
    ours = _command(
        commands, "bench", "each lane against plain generate, by the prompt's length, or under load",
        "Measure each lane against plain generate on the same weights, in turns, or (--clients) what many clients at once see of it; the last line is one JSON object.",
        "[options]",
        "--lanes cpu:fp32", "--lanes cpu:fp32 --peer llama.cpp", "--shape gemma-3-4b --lanes cuda:nf4 --rounds 3", "--lengths 16,128,512,2048 --ours-only",
        "--clients 1,2,4,8 --max-first-token 2 --max-total 10", "--prompts orders.txt --max-new-tokens 64 --repeats 4",
    )  # fmt: skip
    ours.add_argument("--prompt", help=f'the prompt (default: "{DEFAULT_PROMPT}")')
    ours.add_argument("--prompt-tokens", type=int, default=0, metavar="N", help="a raw prompt of exactly N tokens instead (default: --prompt)")
    ours.add_argument("--lengths", default="", metavar="N,N,...", help="raw prompts of so many tokens, a row each, and a chart (default: --prompt)")
    ours.add_argument("--ours-only", action="store_true", help="leave plain generate out, which takes most of the time of a long prompt (default: no)")
    _under_load(ours)
    ours.add_argument(
        "--prompts",
        metavar="FILE",
        help="instead of speed: are our tokens plain's on each prompt of this txt, csv or jsonl? Exit code 1 where rounding doesn't explain a fork. "
        "With --clients: what the clients ask",
    )
    ours.add_argument(
        "--repeats",
        type=int,
        metavar="N",
        help="for --prompts: answers to each, by one visitor and by each of two at once, which must be equal (default: 2)",
    )
    ours.add_argument("--max-new-tokens", type=int, default=50, metavar="N", help="where an answer is cut (default: %(default)s)")
    ours.add_argument("--rounds", type=int, default=5, metavar="N", help="counted answers of each way, or to each client (default: %(default)s)")
    ours.add_argument("--positions", type=int, default=0, metavar="N", help="also compare the log-probabilities at N positions of a fixed text (default: none)")
    ours.add_argument("--shape", metavar="NAME", help="random weights of that size, a name under examples/shapes (default: the model)")
    ours.add_argument("--peer", action="append", default=[], choices=PEERS, help="another way to measure beside it; may be given again (default: none)")
    ours.add_argument("--json", metavar="FILE", help="write the JSON object to FILE too; - for stdout, and then nothing else (default: no)")
    ours.add_argument("--quote", action="append", default=[], metavar="NAME=TPS,TTFT,TOTAL", help="a row measured elsewhere, marked as quoted (default: none)")
    return ours


def _under_load(ours: Parser) -> None:
    """What the bench takes for many clients at once."""
    ours.add_argument(
        "--clients", metavar="N,N,...", help="instead: so many clients at once, each asking again once answered; takes servers too (default: none)"
    )
    ours.add_argument(
        "--max-first-token", type=float, metavar="S", help="for --clients: the longest wait for the first token, to be told where it breaks (default: none)"
    )
    ours.add_argument("--max-total", type=float, metavar="S", help="for --clients: the longest wait for the whole answer (default: none)")
    ours.add_argument(
        "--leave-every", type=int, default=0, metavar="N", help="for --clients: every N-th question is left in its answer's middle (default: none)"
    )


def _quality(commands: Any) -> Parser:
    parser = _command(
        commands, "quality", "what 4 bits changed, on a text or a file of prompts",
        "Measure how far each lane moved from full precision, on a text or on the answers to a file of prompts.",
        "(--text FILE | --prompts FILE) [options]",
        "--text your.txt", "--prompts orders.jsonl --markdown card.md", "--text your.txt --lanes cuda:nf4,cuda:bf16,cpu:fp32 --json -",
    )  # fmt: skip
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--text", metavar="FILE", help="a UTF-8 text, scored in windows of 512 tokens")
    what.add_argument("--prompts", metavar="FILE", help="txt, csv or jsonl with `prompt` and optional `expected`; the answers are scored")
    parser.add_argument("--format", choices=FORMATS, default="chat", help="for --prompts: by the chat template, or as it is (default: %(default)s)")
    parser.add_argument("--max-new-tokens", type=int, default=50, metavar="N", help="for --prompts: where an answer is cut (default: %(default)s)")
    parser.add_argument(
        "--reference-model", metavar="MODEL", help="another checkpoint for the FP32 CPU lane (default: the variable CPU_MODEL_ID, else the model)"
    )
    parser.add_argument("--base", metavar="MODEL", default="", help="what the model was tuned from, for the survival (default: what an adapter names)")
    parser.add_argument("--json", metavar="FILE", help="write the figures to FILE; - for stdout, and then nothing else (default: no)")
    parser.add_argument("--markdown", metavar="FILE", help="write the figures to FILE, ready for a model card (default: no)")
    return parser


def _doctor(commands: Any) -> Parser:
    check = _command(
        commands, "doctor", "what can run here, which models fit, what the cache holds",
        "Tell what can run on this machine, which models fit, and what the cache holds; with MODEL, judge that one before anything of it is downloaded.",
        "[MODEL] [options]", "", "you/your-fine-tune", "--empty-cache",
    )  # fmt: skip
    check.add_argument("named", nargs="?", metavar="MODEL", help="judge this model alone (default: the whole machine)")
    check.add_argument("--empty-cache", action="store_true", help="remove what our cache holds and no lane uses, instead of the report (default: no)")
    return check


def _deploy(commands: Any) -> Parser:
    space = _command(
        commands, "deploy", "this page as a Space on the Hub, on hardware of your choice",
        "Make this folder a Space, or bring it up to date, on hardware of your choice; wait until it runs and ask it one prompt. The token is the one of hf auth login, or HF_TOKEN.",
        "OWNER/NAME --hardware HARDWARE [options]",
        "you/your-space --hardware t4-small --model you/your-fine-tune --dry-run", "you/your-space --hardware l4x1 --model you/private-model --private --secret HF_TOKEN",
        "you/your-space --hardware zero --variable MODELS=you/one,you/other",
    )  # fmt: skip
    space.add_argument("space", metavar="OWNER/NAME", help="the Space; OWNER is you or an organization")
    space.add_argument(
        "--hardware", required=True, metavar="HARDWARE", help="cpu-basic, t4-small, l4x1, zero, ...; doctor says what a model fits on, and its price"
    )
    space.add_argument("--private", action="store_true", help="only you and your organization see it (default: public; one that is there stays as it is)")
    space.add_argument(
        "--variable",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a variable of the Space, which everybody can read; may be given again (default: MODEL_ID alone)",
    )
    space.add_argument(
        "--secret",
        action="append",
        default=[],
        metavar="NAME[=VALUE]",
        help="a secret; NAME alone takes its value from the environment, so that no history has it (default: none)",
    )
    space.add_argument("--prompt", default=DEFAULT_PROMPT, help='what it is asked once it runs (default: "%(default)s")')
    space.add_argument("--wait", type=float, default=30.0, metavar="MINUTES", help="how long to wait until it runs; 0: not at all (default: %(default)g)")
    space.add_argument("--replace", action="store_true", help="also replace a Space of that name that is something else (default: no)")
    space.add_argument("--dry-run", action="store_true", help="only list all that would be done; asks no network and needs no token (default: no)")
    return space


def _decide(commands: Any) -> Parser:
    one = _command(
        commands, "decide", "which lane to serve, by what was measured and what you want",
        "Decide which lane to serve, by records that were measured: what each one costs, whether it keeps your limits, and what would turn it. Starts no lane.",
        "RECORD... --answers-per-day N --price LANE=DOLLARS ... [options]",
        "record.json --answers-per-day 5000 --max-first-token 1 --price cuda:nf4=0.8 --price cpu:fp32=0.03",
        "gpu.json cpu.json quality.json --answers-per-day 200 --min-agreement 0.95 --sleep-after 10 --price cuda:nf4=l4x1 --price cpu:fp32=cpu-upgrade",
    )  # fmt: skip
    one.add_argument("records", nargs="+", metavar="RECORD", help="what `compare --json FILE` or `quality --json FILE` wrote; several of one model are pooled")
    one.add_argument("--answers-per-day", type=float, required=True, metavar="N", help="how many answers you expect a day")
    one.add_argument(
        "--price", action="append", default=[], required=True, metavar="LANE=DOLLARS",
        help="dollars an hour of a lane's hardware, or that hardware's name on the Hub (cuda:nf4=l4x1); once for each lane, one without is out",
    )  # fmt: skip
    one.add_argument("--tokens", type=int, metavar="N", help="tokens of an answer (default: the measured answers' own lengths)")
    one.add_argument("--max-first-token", type=float, metavar="S", help="longest acceptable first token, wait included, in seconds at p95 (default: no limit)")
    one.add_argument("--max-total", type=float, metavar="S", help="longest acceptable whole answer, likewise (default: no limit)")
    one.add_argument("--min-agreement", type=float, metavar="SHARE", help="least share of equal first choices, from 0 to 1 (default: no limit)")
    one.add_argument("--max-lost", type=float, metavar="SHARE", help="largest share of expected answers that may go from right to wrong (default: no limit)")
    one.add_argument("--sleep-after", type=float, metavar="MIN", help="it sleeps so many minutes after a visitor, and loads for the next (default: always on)")
    one.add_argument("--open-hours", type=float, default=24.0, metavar="H", help="hours a day over which the answers come (default: %(default)g)")
    one.add_argument("--load", metavar="FILE", help="what `bench --clients` printed of these lanes (default: one answer at a time, estimated)")
    one.add_argument("--json", metavar="FILE", help="write the decision to FILE; - for stdout, and then nothing else (default: no)")
    one.add_argument("--markdown", metavar="FILE", help="write it to FILE, ready for a model card (default: no)")
    one.add_argument("--report", metavar="FILE", help="write it and the records to FILE, an HTML page to open and to print (default: no)")
    return one
