"""Lanes that give no sign of life, do not get on, or do not stop: asked, told of, and after a time ended, so that they are started anew.

In: the lanes, and what was heard of their processes (`signs.py`). Out: a `ping` after some seconds of silence, each lane's `Quiet`
for those who wait, processes that are killed. Works under the engine's lock, called by its watch. Slow work that goes on is never
ended: each layer of a prompt is a step (`lane/worker.py`), and where a step is long, its time is by the size of model and prompt.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from inference.engine.dispatch import Dispatch
from inference.engine.runs import LaneSlot
from inference.score_events import ScoreRequest
from inference.status import Quiet

log = logging.getLogger(__name__)
STOP_PATIENCE_S = 5.0
ASK_S, ASK_AT_REST_S = 2.0, 15.0  # of silence, until a lane is asked whether it lives
TELL_FROZEN_S, TELL_STILL_S = 3.0, 15.0  # without an answer; without a step
AWAY_S = 5.0  # between two looks: this process itself stood still, so it can't say how long a lane was silent
FROZEN_S = 60.0
FROZEN_LOADING_S = 180.0  # a library may hold the interpreter's lock while a large tensor comes from a slow disk
STILL_S = 60.0
STILL_LOADING_S = 900.0  # writing a checkpoint of a large model takes minutes and tells no step
SLOWEST_BYTES_S = 50e6  # of the weights, for a step that reads all of them from a slow disk
PROMPT_TOKENS = 256  # as many take about as long as one reading of the weights, on the slowest processors
DID_NOT_STOP = "The lane did not stop within {:.0f} s, so its process was ended. Ask again: a fresh one answers."
FROZEN = "The lane's process gave no sign of life for {:.0f} s, so it was ended. The text so far is kept; ask again to start it anew."
STILL = "The lane did not get on for {:.0f} s, so its process was ended. The text so far is kept; ask again to start it anew."


class Silence:
    """One look after the other at all lanes that have a process."""

    def __init__(self, dispatch: Dispatch, clock: Callable[[], float]) -> None:
        self._dispatch, self._clock = dispatch, clock
        self._looked = clock()

    def look(self) -> None:
        """Ask, tell and end, whichever it is time for."""
        with self._dispatch.lock:
            now, before = self._clock(), self._looked
            self._looked = now
            for lane in self._dispatch.lanes.values():
                if lane.key not in self._dispatch.processes:
                    lane.quiet = None
                    continue
                if now - before > AWAY_S:
                    self._all_its_time(lane, now)
                if why := self._why_to_end(lane, now):
                    self._end(lane, why, now)
                else:
                    self._ask(lane, now)

    def _why_to_end(self, lane: LaneSlot, now: float) -> str:
        run, unanswered_s = lane.current, lane.signs.unanswered_s(now)
        if run and run.t_stop and now - run.t_stop > STOP_PATIENCE_S and (not lane.loading or unanswered_s > STOP_PATIENCE_S):
            lane.deaths -= not lane.why_ended  # nothing is known to be wrong with it; one that takes long to go is counted once
            return DID_NOT_STOP.format(STOP_PATIENCE_S)
        if unanswered_s > TELL_FROZEN_S:  # nobody knows whether its work gets on
            return FROZEN.format(now - lane.signs.heard) if unanswered_s > self._frozen_s(lane) else ""
        still_s = self._still_s(lane, now)
        return STILL.format(still_s) if still_s > self._most_still_s(lane) else ""

    def _end(self, lane: LaneSlot, why: str, now: float) -> None:
        log.warning("lane %s: %s", lane.name, why)
        lane.why_ended = why
        self._all_its_time(lane, now)
        self._dispatch.processes[lane.key].kill()

    def _all_its_time(self, lane: LaneSlot, now: float) -> None:
        """Whatever it is waited for, it is from now on."""
        lane.signs.begin(now)
        if lane.current and lane.current.t_stop:
            lane.current.t_stop = now

    def _ask(self, lane: LaneSlot, now: float) -> None:
        signs = lane.signs
        if signs.asked is None and now - signs.heard > (ASK_S if lane.active else ASK_AT_REST_S):
            signs.ask(now)
            self._dispatch.processes[lane.key].send(do="ping")
        frozen, still_s = signs.unanswered_s(now) > TELL_FROZEN_S, self._still_s(lane, now)
        if frozen:
            lane.quiet = Quiet(now - signs.heard, self._frozen_s(lane), frozen)
        else:
            lane.quiet = Quiet(still_s, self._most_still_s(lane), frozen) if still_s > TELL_STILL_S else None

    def _still_s(self, lane: LaneSlot, now: float) -> float:
        """For how long the work at hand has brought nothing; a server elsewhere has its own time-outs, and thinks as long as those let it."""
        return now - lane.signs.moved if lane.active and not lane.name.elsewhere else 0.0

    def _frozen_s(self, lane: LaneSlot) -> float:
        return self._dispatch.settings.lane_patience_s or (FROZEN_LOADING_S if lane.loading else FROZEN_S)

    def _most_still_s(self, lane: LaneSlot) -> float:
        """How long one step may take."""
        if patience_s := self._dispatch.settings.lane_patience_s:
            return patience_s
        if lane.loading or lane.current is None:
            return STILL_LOADING_S
        weights = lane.facts.weights_bytes if lane.facts else None
        asked, ids = lane.current.comparison.asked, lane.current.comparison.prompt_ids or ()
        tokens = len(asked.ids) if isinstance(asked, ScoreRequest) else len(ids)
        return STILL_S + (weights or 0) / SLOWEST_BYTES_S * (1 + tokens / PROMPT_TOKENS)
