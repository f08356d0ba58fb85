"""The report of the pool's own fault: what went wrong, what led to it, and how to see it again.

    Machine(policy, slots, Random(seed)) ─► what it was told, at its instants ─► the fault, in a test: `replay`

It holds no tensor. Exact is a replay of all events since the start; of a pool that has run for long the first ones are
missing, and `left_out` says how many.
"""

import json
import random
import traceback
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pool.core import Machine, Policy, SlotPlan
from pool.recorder.hot_calls import tell
from pool.recorder.last_events import FREQUENT, LastEvents
from pool.recorder.transcript import BadTranscript, read, written

__all__ = ["FORMAT", "events_of", "fault_report", "replay", "summary"]

# Who changes a class that is written down raises this number, and adds a step to `_STEPS`.
FORMAT = 6  # of the classes in it; one row of numbers with that of `pool.recorder.shelf`, in whose folder it is kept
TRACEBACK_CHARS = 32 << 10
EVENTS_BYTES = 1 << 20  # of the frequent events, and as many of the rare ones

Plain = list[Any]  # number, instant, and the event as `pool.recorder.transcript` writes it


def fault_report(
    fault: BaseException,
    last: LastEvents,
    machine: Machine,
    began_with: tuple[Policy, Sequence[SlotPlan]],
    seed: bytes,
    about: Mapping[str, Any],
) -> dict[str, Any]:
    """Plain values for JSON. `began_with` and `seed`: what the machine was made of. `about`: which pool it was."""
    policy, slots = began_with
    events = _within(last, EVENTS_BYTES)
    return {
        "format": FORMAT,
        **about,
        "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "fault": str(fault),
        "traceback": "".join(traceback.format_exception(fault.__cause__ or fault))[-TRACEBACK_CHARS:],
        "state": summary(machine),
        "seed": seed.hex(),
        "policy": written(policy),
        "slots": written(slots),
        "left_out": last.noted - len(events),
        "events": events,
    }


def summary(machine: Machine) -> dict[str, Any]:
    """What can be compared after a replay."""
    return {
        "answered": dict(machine.answered),
        "jobs": len(machine.backlog.jobs),
        "slots": [[slot.state.name, slot.worker.incarnation, len(slot.batches)] for slot in machine.fleet.slots],
    }


def replay(
    report: Mapping[str, Any],
    through: Callable[[Machine], Any] = lambda machine: machine,
) -> Machine:
    """Tells a new core what the one of the report was told; raises what that one raised.

    `through`: what is told in place of the machine. Raises `BadTranscript` for what is no report.
    """
    events = events_of(report)
    rng = random.Random(bytes.fromhex(report["seed"]))
    machine = Machine(read(_renamed(report["policy"])), read(_renamed(report["slots"])), rng)
    core = through(machine)
    for _, now, event in events:
        tell(core, read(event), now)
    return machine


def _within(last: LastEvents, most_bytes: int) -> list[list[Any]]:
    """The newest of each kind, as many as there is room for."""
    left = {True: most_bytes, False: most_bytes}
    kept = []
    for number, now, event in reversed(list(last)):
        plain = [number, now, written(event)]
        frequent = type(event) in FREQUENT
        left[frequent] -= len(json.dumps(plain))
        if left[frequent] >= 0:
            kept.append(plain)
    return kept[::-1]


def events_of(report: Mapping[str, Any], newest: int = FORMAT) -> Sequence[Plain]:
    """Those of a report of any format up to the newest, as this release's core understands them.

    Raises `BadTranscript` for one of another.
    """
    number = report["format"]
    if type(number) is not int or not 1 <= number <= newest:
        raise BadTranscript(f"a report of format {number!r:.40}; this release reads 1 to {newest}")
    events: Sequence[Plain] = report["events"]
    for step in _STEPS[number - 1 :]:
        events = step(events)
    return events


def _from_1(events: Sequence[Plain]) -> list[Plain]:
    """Workers told when they began to compare rows, and which lane it was."""
    found = []
    for number, now, event in events:
        if "WorkerCompared" in event:
            fields = {key: each for key, each in event["WorkerCompared"].items() if key != "lane"}
            compared = dict(fields["compared"]["RowsCompared"])
            if compared.pop("begun"):
                continue
            event = {"WorkerCompared": {**fields, "compared": {"RowsCompared": compared}}}
        found.append([number, now, event])
    return found


def _from_2(events: Sequence[Plain]) -> list[Plain]:
    """A dispatch followed each event, and was not told."""
    return [each for number, now, event in events for each in ([number, now, event], [number, now, {"Dispatched": {}}])]


def _from_3(events: Sequence[Plain]) -> list[Plain]:
    """Several jobs that came as one had the rows of each."""
    found = []
    for number, now, event in events:
        if "JobArrived" in event:
            fields = dict(event["JobArrived"])
            members = fields.pop("members", ())
            event = {"JobArrived": {**fields, "weight": max(1, len(members))}}
        found.append([number, now, event])
    return found


def _from_4_or_5(events: Sequence[Plain]) -> list[Plain]:
    """Some things had other names."""
    found: list[Plain] = _renamed(events)
    return found


_RENAMED: Mapping[str, str] = {"successor": "replacement", "speed_ups": "optimizations", "SpeedUp": "Optimization"}
_VALUES = {("replacement", "never"): "off", ("Batching", "NEVER"): "OFF"}


def _renamed(plain: Any, of: str = "") -> Any:
    """The same, with today's names of classes, fields and choices. No name of old means another thing today."""
    if isinstance(plain, dict):
        return {(name := _RENAMED.get(key, key)): _renamed(each, name) for key, each in plain.items()}
    if isinstance(plain, list):
        return [_renamed(each) for each in plain]
    return _VALUES.get((of, plain), plain) if isinstance(plain, str) else plain


_STEPS: Sequence[Callable[[Sequence[Plain]], Sequence[Plain]]] = (_from_1, _from_2, _from_3, *[_from_4_or_5] * 2)
