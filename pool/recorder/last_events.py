"""The events that the core heard of last, for the report of the pool's own fault.

Nothing is copied when an event comes. Once its actions are done, what a client or a worker may have made large is taken
out of it: tensors, long lists of outputs, long texts. So of the usual events a kilobyte each is kept, and no tensor.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import replace

from pool.core.events import (
    BatchDone,
    ClientGone,
    Event,
    Failed,
    JobArrived,
    JobCancelled,
    Outcome,
    RowsChanged,
    Spoiled,
    Succeeded,
    Tick,
    WorkerBeat,
    WorkerExited,
    WorkerMeasured,
    WorkerReady,
)
from pool.wire.signatures import ModelInfo

__all__ = ["LastEvents"]

MOST_FREQUENT = 500
MOST_RARE = 300  # how the slots and the plan came to be what they are; without these the others mean little
FREQUENT = frozenset({JobArrived, BatchDone, JobCancelled, ClientGone, WorkerBeat, WorkerMeasured, Tick})
MOST_OUTPUTS = 16
MOST_INFOS = 1000
TEXT_CHARS = 500
DONE = Succeeded(None)  # of all that succeeded


class LastEvents:
    """The frequent ones and the rare ones have each their own room."""

    def __init__(self) -> None:
        self.noted = 0
        self._frequent: deque[tuple[int, float, Event]] = deque(maxlen=MOST_FREQUENT)
        self._rare: deque[tuple[int, float, Event]] = deque(maxlen=MOST_RARE)
        self._infos: dict[str, ModelInfo] = {}

    def note(self, event: Event, now: float) -> None:
        """The core is about to hear of it."""
        self.noted += 1
        if type(event) in FREQUENT:
            self._frequent.append((self.noted, now, event))
        else:
            self._rare.append((self.noted, now, self._short(event)))

    def strip(self, event: Event) -> None:
        """All that the event was about is done: nobody else reads it any more."""
        if type(event) is JobArrived:
            event.payload = None
            if event.outputs is not None and len(event.outputs) > MOST_OUTPUTS:
                # What is the same stays the same, which is all that the core asks of them.
                event.outputs = (f"{len(event.outputs)} outputs", str(hash(event.outputs)))
        elif type(event) is BatchDone:
            event.outcomes = tuple([DONE if type(each) is Succeeded else _shortened(each) for each in event.outcomes])

    def __iter__(self) -> Iterator[tuple[int, float, Event]]:
        """(number, instant, event), in their order; numbers begin with 1."""
        return iter(sorted([*self._rare, *self._frequent], key=lambda noted: noted[0]))

    def __len__(self) -> int:
        return len(self._rare) + len(self._frequent)

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


def _shortened(outcome: Outcome) -> Outcome:
    match outcome:
        case Failed(fault, text):
            return Failed(fault, text[:TEXT_CHARS])
        case Spoiled(fault, text):
            return Spoiled(fault, text[:TEXT_CHARS])
        case RowsChanged(text):
            return RowsChanged(text[:TEXT_CHARS])
    return DONE
