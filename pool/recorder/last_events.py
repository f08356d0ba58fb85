"""What the core was told last, for the report of the pool's own fault.

Of what happens for every job a plain tuple is kept, without what a client or a worker may have made large: tensors,
long lists of outputs, long forms and texts. Only a report makes values of them. So of the usual calls a
kilobyte each is kept.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from pool.core.events import (
    ClientGone,
    Event,
    Failure,
    JobCancelled,
    Tick,
    WorkerBeat,
    WorkerExited,
    WorkerMeasured,
    WorkerReady,
)
from pool.recorder.hot_calls import BatchDone, Dispatched, JobArrived, Outcome, Succeeded, Told
from pool.wire.signatures import ModelInfo

__all__ = ["DISPATCHED", "LastEvents"]

MOST_FREQUENT = 1000  # a lone job has four: it came, it was done, and after each of both there was a dispatch
MOST_RARE = 300  # how the slots and the plan came to be what they are; without these the others mean little
FREQUENT = frozenset({JobArrived, BatchDone, Dispatched, JobCancelled, ClientGone, WorkerBeat, WorkerMeasured, Tick})
MOST_OUTPUTS = 16
MOST_FORM_BYTES = 500
MOST_INFOS = 1000
TEXT_CHARS = 500
DONE = Succeeded(None)  # of all that succeeded
DISPATCHED = Dispatched()

Kept = tuple[int, float, Any]


class LastEvents:
    """The frequent ones and the rare ones have each their own room."""

    def __init__(self) -> None:
        self.noted = 0
        self.frequent: deque[Kept] = deque(maxlen=MOST_FREQUENT)
        self._rare: deque[Kept] = deque(maxlen=MOST_RARE)
        self._infos: dict[str, ModelInfo] = {}

    def note(self, event: Event, now: float) -> None:
        """The core is about to hear of it."""
        self.noted += 1
        if type(event) in FREQUENT:
            self.frequent.append((self.noted, now, event))
        else:
            self._rare.append((self.noted, now, self._short(event)))

    def arrived(self, now: float, asked: tuple[Any, ...], more: tuple[Any, ...]) -> None:
        """The arguments of `Machine.arrived`: those before the payload, and those after it."""
        self.noted += 1
        if asked[4] is not None and len(asked[4]) > MOST_OUTPUTS:
            # What is the same stays the same, which is all that the core asks of them.
            asked = (*asked[:4], (f"{len(asked[4])} outputs", str(hash(asked[4]))), *asked[5:])
        if len(asked[10]) > MOST_FORM_BYTES:
            asked = (*asked[:10], b"%d bytes, %d" % (len(asked[10]), hash(asked[10])))
        self.frequent.append((self.noted, now, (asked, more)))

    def batch_done(
        self,
        now: float,
        done: tuple[int, int, int, int],
        parts: int,
        failures: Mapping[int, Failure],
        run_s: float,
        fetch_s: float,
    ) -> None:
        """The arguments of `Machine.batch_done`; of the answers only how many there are."""
        self.noted += 1
        if failures:
            failures = {place: _shortened(failure) for place, failure in failures.items()}
        self.frequent.append((self.noted, now, (done, parts, failures, run_s, fetch_s)))

    def __iter__(self) -> Iterator[tuple[int, float, Told]]:
        """(number, instant, what was told), in their order; numbers begin with 1."""
        kept = sorted([*self._rare, *self.frequent], key=lambda noted: noted[0])
        return ((number, now, _value(what)) for number, now, what in kept)

    def __len__(self) -> int:
        return len(self._rare) + len(self.frequent)

    def _short(self, event: Event) -> Event:
        if isinstance(event, WorkerExited):
            return replace(event, death=replace(event.death, last_output=()))
        if isinstance(event, WorkerReady):  # each worker of a model says the same, at some length
            if len(self._infos) > MOST_INFOS:
                self._infos.clear()
            return replace(event, models=tuple(map(self._known, event.models)))
        return event

    def _known(self, info: ModelInfo) -> ModelInfo:
        if self._infos.get(info.name) != info:
            self._infos[info.name] = info
        return self._infos[info.name]


def _value(what: Any) -> Told:
    if not isinstance(what, tuple):
        return what  # type: ignore[no-any-return]  # an event, or that there was a dispatch
    if len(what) == len(("asked", "more")):
        asked, more = what
        return JobArrived(*asked, None, *more)  # type: ignore[call-arg]  # of the right length
    done, parts, failures, run_s, fetch_s = what
    slot, incarnation, lane, batch = done
    outcomes: tuple[Outcome, ...] = tuple([failures.get(place, DONE) for place in range(parts)])
    return BatchDone(slot, incarnation, lane, batch, outcomes, run_s, fetch_s)


def _shortened(failure: Failure) -> Failure:
    return replace(failure, text=failure.text[:TEXT_CHARS])
