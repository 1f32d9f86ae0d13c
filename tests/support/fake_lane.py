"""A lane process without a model: speaks the worker's protocol, emits scripted tokens with scripted delays.

`python tests/support/fake_lane.py LANE`; the script is JSON in FAKE_LANE, or in the file FAKE_LANE_FILE, which is read again for
every answer; keyed by lane (or "*") and by model (FAKE_MODEL): load_s, first_s, token_s, tokens, chunk (tokens per text event), fail_at, die_at
(token numbers), say (the words to repeat), hello_s (delay before it says what it is), imports_s (the same after it has said that it imports), dies_at_start, hold_at (the token
before which it waits, until a later script says otherwise or it is stopped), load_holds (it waits while it loads, until a later script
says otherwise), stands ("load", "score", or a token: there it waits for good, though a stop ends a run), noise_at and close_at (tokens before which it writes what is no event, and closes its output), load_fails (the sentence by which it does), fork_at (the token from which it writes
other ids and the words fork_say), fails_on (a prompt that holds this text fails), dies_on (one that holds this kills it), score_fails (its sentence), score_dies, score_holds (it scores until it is stopped), text_ids (what a text is turned into),
base (of its model), kld (what it says when it scores, repeated), margin (between its first and second choice).
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from inference.events import Done, Event, Failed, Hello, LaneFacts, Loaded, LoadFigures, Loading, Prefill, Ram, Scored, Text, encode
from inference.life_events import Alive
from inference.timing import Stopwatch

WORDS = ["We", "have", "chicken", "biryani,", "mutton", "korma", "and", "a", "few", "cold", "drinks", "today.", "What", "would", "you", "like", "to", "order?"]


def emit(event: Event) -> None:
    sys.stdout.write(encode(event) + "\n")  # in one piece: two threads write
    sys.stdout.flush()


def facts(lane: str, base: str | None = None) -> LaneFacts:
    four_bit = lane.endswith("nf4")
    return LaneFacts(
        model_id=os.environ.get("FAKE_MODEL", "fake/model"), revision=None, architecture="FakeForCausalLM", parameters=1000, device=lane.split(":")[0],
        device_name="Fake processor", precision="NF4" if four_bit else "FP32", storage_dtype="uint8" if four_bit else "float32",
        compute_dtype="float32", quantization={"type": "nf4", "double": False} if four_bit else None, device_map=lane.split(":")[0],
        kernel="fake", threads=2, kept_16bit=("lm_head",) if four_bit else (), weights_bytes=600 if four_bit else 4000,
        context_length=2048, has_chat_template=True, base=base, step_bytes=500 if four_bit else 3000, matrix_parameters=800,
    )  # fmt: skip


class FakeLane:
    def __init__(self, lane: str) -> None:
        self.lane = lane.replace("auto", "cpu")
        self.script = self.read_script()
        self.requests: queue.Queue = queue.Queue()
        self.stopped: set[str] = set()
        self.loaded = False

    def read_script(self) -> dict:
        path = os.environ.get("FAKE_LANE_FILE")
        scripts = json.loads(Path(path).read_text("utf-8") if path else os.environ.get("FAKE_LANE", "{}"))
        return {**scripts.get("*", {}), **scripts.get(self.lane, {}), **scripts.get(os.environ.get("FAKE_MODEL"), {})}

    def read(self) -> None:
        for line in sys.stdin:
            message = json.loads(line)
            if message["do"] == "stop":
                self.stopped.add(message["run_id"])
            elif message["do"] == "ping":
                emit(Alive(0))
            elif message["do"] != "hold":
                self.requests.put(message)
        os._exit(0)

    def load(self) -> None:
        if self.loaded:
            return
        load_s = self.script.get("load_s", 0.05)
        while self.read_script().get("load_holds"):
            emit(Loading("downloading", 2**29, 2**31, "bytes"))
            time.sleep(0.02)
        if self.script.get("stands") == "load":
            emit(Loading("reading weights"))
            self.stand("")
        if sentence := self.read_script().get("load_fails"):
            emit(Failed(None, sentence))
            return
        for step in range(5):
            emit(Loading("reading weights", step, 5, "weights"))
            time.sleep(load_s / 5)
        emit(Loaded(facts(self.lane, self.script.get("base")), LoadFigures(load_s, {"read": load_s}, peak_ram_bytes=10_000_000)))
        self.loaded = True

    def stand(self, run_id: str) -> None:
        while run_id not in self.stopped:
            time.sleep(0.02)

    def generate(self, run_id: str, request: dict) -> None:
        self.script = script = self.read_script()
        watch = Stopwatch()
        limit = min(request["max_new_tokens"], script.get("tokens", 12))
        if script.get("fails_on", "\0") in request["prompt"]:
            emit(Failed(run_id, "The scripted lane can't answer this one."))
            return
        if script.get("dies_on", "\0") in request["prompt"]:
            os.kill(os.getpid(), signal.SIGKILL)
        emit(Prefill(run_id, (1, 2, 3, 4), request["format"], watch.start()))
        text, pending, ids = "", "", []
        for n in range(1, limit + 1):
            while n == self.read_script().get("hold_at") and run_id not in self.stopped:
                time.sleep(0.02)
            if n == script.get("stands"):
                self.stand(run_id)
            time.sleep(script.get("first_s", 0.02) if n == 1 else script.get("token_s", 0.01))
            if run_id in self.stopped:
                break
            if n == script.get("fail_at"):
                emit(Failed(run_id, "The scripted lane failed here. Ask again."))
                return
            if n == script.get("noise_at"):
                sys.stdout.write("no event\n{}\n[1]\n" * 500 + '{"event": "text"}\n')
            if n == script.get("close_at"):
                os.close(1)
                time.sleep(60)
            if n == script.get("die_at"):
                os.kill(os.getpid(), signal.SIGKILL)
            word = script.get("say") or WORDS[(n - 1) % len(WORDS)] + " "
            forked = n >= script.get("fork_at", 10**6)
            word = script.get("fork_say", "other ") if forked else word
            text, pending, ids = text + word, pending + word, [*ids, 10 + n + 100 * forked]
            watch.token()
            if n % script.get("chunk", 1) == 0 or n == limit:
                emit(Text(run_id, pending, n, watch.stamps[-1] - watch.t_start))
                pending = ""
        reason = "stopped" if run_id in self.stopped else "length" if len(ids) == request["max_new_tokens"] else "stop"
        emit(Done(run_id, reason, text, tuple(ids), 4, watch.timings(4), t_start=watch.t_start, ram=Ram(10_000_000, 9_000_000), path="eager", warm=True))

    def score(self, run_id: str, request: dict) -> None:
        self.script = script = self.read_script()
        if script.get("score_dies"):
            os.kill(os.getpid(), signal.SIGKILL)
        while self.read_script().get("score_holds") and run_id not in self.stopped:
            time.sleep(0.02)
        if script.get("stands") == "score":
            self.stand(run_id)
        if run_id in self.stopped:
            emit(Failed(run_id, "The scoring was stopped."))
            return
        if "score_fails" in script:
            emit(Failed(run_id, script["score_fails"]))
            return
        if request["text"]:
            emit(Scored(run_id, tuple(script.get("text_ids", range(10, 30)))))
            return
        ids = tuple(request["ids"][request["first"] : request["last"]])
        words = [script.get("say") or WORDS[(token - 11) % len(WORDS)] + " " for token in ids]
        kld = script.get("kld", [0.001, 0.05, 0.5, 2.0])
        best = [token + (i % 3 == 2) * request["read"].endswith("f32") for i, token in enumerate(ids)]
        tops = [[token, token + 100, 3, 4, 5] for token in best]
        logprobs = [-0.4, -0.4 - script.get("margin", 0.7), -3.0, -4.0, -5.0]
        emit(Scored(
            run_id, ids, (0.5 if request["write"] else 0.6,) * len(ids), tuple(best), tuple(token for top in tops for token in top), tuple(logprobs * len(ids)),
            tuple(kld[i % len(kld)] for i in range(len(ids))) if request["read"] else (), 1000, len(request["ids"]),
            pieces=tuple(words), top_pieces=tuple(text for word in words for text in (word, script.get("fork_say", "other "), "a", "b\n", "<i>")),
        ))  # fmt: skip

    def run(self) -> None:
        threading.Thread(target=self.read, daemon=True).start()
        if self.script.get("dies_at_start"):
            os._exit(3)
        if "imports_s" in self.script:
            emit(Loading("importing libraries"))
            time.sleep(self.script["imports_s"])
        time.sleep(self.script.get("hello_s", 0))
        emit(Hello(self.lane, self.lane.split(":")[0], {"torch": "fake"}, {"cpu": "Fake processor"}, reason="no CUDA device" if "nf4" in self.lane else None))
        while True:
            message = self.requests.get()
            self.load()
            if not self.loaded:
                continue
            if message["do"] == "generate":
                self.generate(message["run_id"], message["request"])
            if message["do"] == "score":
                self.score(message["run_id"], message["request"])


if __name__ == "__main__":
    FakeLane(sys.argv[1]).run()
