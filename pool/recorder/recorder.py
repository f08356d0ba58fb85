"""What the loop hears of each worker, and what is made of it when the worker is gone.

    WorkerBeat, Batch, SlotChanged, KillWorker ────► the last few of each slot ─┐
    WorkerExited, its output, its stacks ───────────────────────────────────────┴─► report ─► memory, disk

A worker that ended because it was told to leaves none.
"""

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pool.core.actions import KillWorker, SlotChanged
from pool.core.events import Death, WorkerBeat, WorkerExited
from pool.core.fleet import Fleet, Slot, SlotState
from pool.logs import about
from pool.processes import Trace
from pool.recorder.batches import Tables, batches_of
from pool.recorder.shelf import FORMAT, MOST_DEATHS_LISTED, CrashReport, Shelf, line_of
from pool.wire.exits import Exit

__all__ = ["Recorder"]

log = logging.getLogger("pool.recorder")

MOST_REPORTS = 3  # of a slot, in memory
MOST_BEATS = 10
MOST_STATES = 20
MOST_DEATHS = 20  # of a slot, a line each
MOST_LANES = 64
DETAIL_CHARS = 200
OUTPUT_CHARS = 64 << 10
LATELY_S = 3600.0


@dataclass(slots=True)
class _Track:
    """What is known of one slot. `states` and `beats` are those of its present worker."""

    states: deque[tuple[float, SlotState, str]] = field(default_factory=lambda: deque(maxlen=MOST_STATES))
    beats: deque[tuple[float, WorkerBeat]] = field(default_factory=lambda: deque(maxlen=MOST_BEATS))
    killed: "_Sight | None" = None
    deaths: deque[tuple[float, dict[str, Any]]] = field(default_factory=lambda: deque(maxlen=MOST_DEATHS))
    reports: deque[CrashReport] = field(default_factory=lambda: deque(maxlen=MOST_REPORTS))


@dataclass(frozen=True, slots=True)
class _Sight:
    """A worker as it was at one moment. `stacks`: it was killed because it hung."""

    about: dict[str, Any]
    stacks: bool


class Recorder:
    """Used from the pool's loop; nothing here blocks it but `close`, and nothing raises."""

    def __init__(self, fleet: Fleet, devices: Sequence[str], shelf: Shelf, about: dict[str, Any]) -> None:
        """`devices`: their names by slot. `about`: what each report says of the pool, `endpoint` among it."""
        self._fleet = fleet
        self._devices = devices
        self.shelf = shelf
        """What of it is kept on the disk."""
        self._about = about
        self._tables = Tables()
        self.ran = self._tables.note
        """A batch begins."""
        self._tracks = [_Track() for _ in devices]

    # --- what it hears ------------------------------------------------------------------------------------------

    def beat(self, event: WorkerBeat, now: float) -> None:
        if event.incarnation == self._fleet.slots[event.slot].worker.incarnation:
            self._tracks[event.slot].beats.append((now, event))

    def changed(self, change: SlotChanged, now: float) -> None:
        track = self._tracks[change.slot]
        if change.state is SlotState.STARTING:
            track.states.clear()
            track.beats.clear()
            track.killed = None
        track.states.append((now, change.state, change.reason))

    def killed(self, action: KillWorker, now: float) -> None:
        """What it was doing is remembered as of now: the core takes its batches away when it is given up."""
        slot = self._fleet.slots[action.slot]
        if slot.worker.incarnation == action.incarnation:
            self._tracks[action.slot].killed = self._sight(slot, now, action.stacks)

    def died(self, event: WorkerExited, trace: Trace | None, now: float) -> None:
        """Makes the report. REQUIRES that the core has not heard of it yet, or has given the worker up before."""
        try:
            self._died(event.slot, event.incarnation, event.death, trace, now)
        except Exception:  # whatever a dead worker leaves, the pool goes on
            extra = about("crash_report_not_made", slot=event.slot, incarnation=event.incarnation)
            text = "slot %d: no crash report could be made of incarnation %d"
            log.exception(text, event.slot, event.incarnation, extra=extra)

    # --- what it tells ------------------------------------------------------------------------------------------

    def has(self, slot: int, incarnation: int) -> bool:
        reports = self._tracks[slot].reports
        return bool(reports) and reports[-1]["incarnation"] == incarnation

    def reports(self, slot: int) -> list[CrashReport]:
        """Those in memory, the newest first; then the newest of a former pool."""
        own = list(reversed(self._tracks[slot].reports))
        former = self.shelf.former.get(slot)
        return own if former is None or former in own else [*own, former]

    def deaths(self) -> list[dict[str, Any]]:
        """A line each, the newest first: this pool's, and those of former pools."""
        own = [death for track in self._tracks for _, death in track.deaths]
        former = [
            death for death in self.shelf.former_deaths if death not in own
        ]  # one may have been written meanwhile
        return sorted(own + former, key=lambda death: death["died_at"], reverse=True)[:MOST_DEATHS_LISTED]

    def folder(self) -> str | None:
        """Where the reports are, None where they are kept in memory only."""
        return None if self.shelf.folder is None else str(self.shelf.folder)

    # --- how ----------------------------------------------------------------------------------------------------

    def _died(self, number: int, incarnation: int, death: Death, trace: Trace | None, now: float) -> None:
        slot, track = self._fleet.slots[number], self._tracks[number]
        if slot.worker.incarnation != incarnation or self.has(number, incarnation):
            return
        if death.other_release and slot.state is SlotState.STARTING:
            return  # it has said what is to be done, and so will each that follows
        killed, kill = (None, None) if death.untouched else (track.killed, slot.worker.killed_for)
        if self._was_asked(slot, killed, trace):
            return
        sight = track.killed or self._sight(slot, now, stacks=False)
        report: CrashReport = {
            "format": FORMAT,
            **self._about,
            "slot": number,
            "incarnation": incarnation,
            "device": self._devices[number],
            "pid": None if trace is None else trace.pid,
            "died_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "up_s": None if trace is None else trace.up_s,
            "exit": death.text,
            "killed_for": None if kill is None else kill.why,
            **sight.about,
            "states": [
                {"state": state.name, "age_s": now - since, "reason": reason} for since, state, reason in track.states
            ],
            "beats": [_beat(beat, now - heard) for heard, beat in track.beats],
            "deaths_lately": 1 + sum(now - then <= LATELY_S for then, _ in track.deaths),
            "deaths": [earlier for _, earlier in track.deaths],
            "last_output": _last(death.last_output),
            "stacks": "" if trace is None else trace.stacks,
            "threads": [] if trace is None else list(trace.threads),
            "note": "" if trace is None else trace.note,
        }
        track.deaths.append((now, line_of(report)))
        track.reports.append(report)
        self.shelf.put(report)

    def _was_asked(self, slot: Slot, killed: _Sight | None, trace: Trace | None) -> bool:
        """Whether the worker ended because the pool, or a person, wanted it to."""
        if killed is not None:
            return self._fleet.stopping and not killed.stacks
        told = slot.state is SlotState.STOPPING
        return told and trace is not None and trace.status in (Exit.STOPPED, Exit.POOL_GONE)

    def _sight(self, slot: Slot, now: float, stacks: bool) -> _Sight:
        """`state`: the last that was not the dying itself."""
        states = [(since, state) for since, state, _ in self._tracks[slot.number].states]
        while len(states) > 1 and states[-1][1] is SlotState.STOPPING:
            states.pop()
        since, state = states[-1] if states else (slot.since, slot.state)
        about = {
            "state": state.name,
            "state_s": now - since,
            "phase": slot.worker.phase.value,
            "detail": slot.worker.detail[:DETAIL_CHARS],
            "phase_s": now - slot.worker.phase_since,
            "models": list(slot.models),
            "batches": batches_of(slot, self._tables, now),
        }
        return _Sight(about, stacks)


def _beat(beat: WorkerBeat, age_s: float) -> dict[str, Any]:
    running = [{"lane": lane.lane, "batch": lane.batch, "age_s": lane.age_s} for lane in beat.running[:MOST_LANES]]
    return {"age_s": age_s, "phase": beat.phase.value, "detail": beat.detail[:DETAIL_CHARS], "running": running}


def _last(lines: Sequence[str]) -> list[str]:
    """As many of the last ones as there is room for."""
    kept: list[str] = []
    left = OUTPUT_CHARS
    for line in reversed(lines):
        left -= len(line)
        if left < 0:
            break
        kept.append(line)
    return kept[::-1]
