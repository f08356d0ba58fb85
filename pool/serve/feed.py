"""The way to the core and back: what happens is told, then comes one dispatch, and then all that the core wants done.

arrived, batch_done ─┐
event ─► waiting ────┴─► Machine ─► dispatch ─► order, order, … ─► done
            ▲                                       │
            └────────── spawned, unsent, … ◄────────┘
"""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from pool.core.actions import Action
from pool.core.events import Event, Failure
from pool.core.jobs import Batch, Job
from pool.core.orders import Orders
from pool.recorder.last_events import LastEvents

__all__ = ["Core", "CoreFault", "Feed"]

ARRIVED, DONE = "JobArrived", "BatchDone"  # as a report calls them


class CoreFault(BaseException):
    """The core, or what follows from its decisions, has raised: a bug, after which its state can't be trusted.

    No `Exception`: whoever contains what goes wrong with one peer's message must not contain this.
    """


class Core(Protocol):
    """What of `Machine` is spoken to from here."""

    @property
    def orders(self) -> Orders: ...
    @property
    def handle(self) -> Callable[[Event, float], None]: ...
    @property
    def arrived(self) -> Callable[..., None]: ...
    @property
    def batch_done(self) -> Callable[..., None]: ...
    @property
    def dispatch(self) -> Callable[[float], bool]: ...


class Answering(Protocol):
    """What of `Front` is spoken to from here."""

    @property
    def done(self) -> Callable[[Job, tuple[object, ...]], None]: ...
    @property
    def answered(self) -> Callable[[], None]: ...


class Feed:
    """Used from the pool's loop. After a `CoreFault` the core hears of nothing any more.

    Jobs that arrived and batches that are done wait for `dispatch`, which the loop calls when it has read what was
    there. An event is rare, and dispatched at once.
    """

    def __init__(
        self,
        core: Core,
        prepare: Callable[[Event, float], None],
        run: Callable[[Batch], None],
        act: Callable[[Action], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`prepare` is called before the core hears of an event, `run` for each batch, `act` for each other order."""
        self.last = LastEvents()
        self.front: Answering
        """Who answers jobs; given before the first of them is told."""
        self._core = core
        self._prepare = prepare
        self._run = run
        self._act = act
        self._clock = clock
        self._waiting: deque[tuple[object, Callable[[], None]]] = deque()
        self._busy = False
        self._told = False  # something of which nothing has followed yet

    def __call__(self, event: Event) -> None:
        """Has the core handle the event; what arises meanwhile is handled before this returns.

        Called while orders are being done, it returns at once, and the event waits for its turn.
        Raises `CoreFault`.
        """
        self._waiting.append((event, partial(self._hear, event)))
        if not self._busy:
            self._told = True
            self.dispatch()

    def arrived(
        self,
        client: bytes,
        job: int,
        model: str,
        signature: str | None,
        outputs: tuple[str, ...] | None,
        rows: int | None,
        timeout_s: float | None,
        priority: int,
        device: str | None,
        size_bytes: int,
        form: bytes,
        payload: object,
        attempts: int = 0,
        in_doubt: bool = False,
        weight: int = 1,
        origin: int = 0,
        version: int | str | None = None,
    ) -> None:
        """As `Machine.arrived`; while orders are being done it waits for its turn. Raises `CoreFault`."""
        asked = client, job, model, signature, outputs, rows, timeout_s, priority, device, size_bytes, form
        more = attempts, in_doubt, weight, origin, version
        if self._busy:
            self._waiting.append((ARRIVED, partial(self._late, self.arrived, *asked, payload, *more)))
            return
        self._busy = self._told = True
        try:
            now = self._clock()
            self.last.arrived(now, asked, more)
            self._core.arrived(*asked, payload, *more, now)
        except Exception as error:
            raise CoreFault(f"{ARRIVED}: {type(error).__name__}: {error}") from error
        self._busy = False

    def batch_done(
        self,
        slot: int,
        incarnation: int,
        lane: int,
        batch: int,
        payloads: Sequence[object],
        failures: Mapping[int, Failure],
        run_s: float,
        fetch_s: float,
    ) -> None:
        """As `Machine.batch_done`; while orders are being done it waits for its turn. Raises `CoreFault`."""
        done = slot, incarnation, lane, batch
        if self._busy:
            late = partial(self._late, self.batch_done, *done, payloads, failures, run_s, fetch_s)
            self._waiting.append((DONE, late))
            return
        self._busy = self._told = True
        try:
            now = self._clock()
            self.last.batch_done(now, done, len(payloads), failures, run_s, fetch_s)
            self._core.batch_done(*done, payloads, failures, run_s, fetch_s, now)
        except Exception as error:
            raise CoreFault(f"{DONE}: {type(error).__name__}: {error}") from error
        self._busy = False

    def dispatch(self) -> None:
        """What follows from all that was told is done, and what arises meanwhile too, before this returns.

        Raises `CoreFault`.
        """
        if not self._told or self._busy:
            return
        self._busy, self._told = True, False
        waiting, cause, doing, more, answered = self._waiting, None, None, True, False
        try:
            while waiting or more:
                if waiting:
                    cause, hear = waiting.popleft()
                    doing = cause
                    hear()
                now = self._clock()
                self.last.dispatched(now)
                more = self._core.dispatch(now)
                for order in self._core.orders.drain():
                    doing = order
                    match order:
                        case Batch():
                            self._run(order)
                        case (job, answers):
                            answered = True
                            self.front.done(job, answers)
                        case _:
                            self._act(order)
            doing = None
            if answered:
                self.front.answered()
        except Exception as error:
            where = "the answers" if doing is None else _name(doing)
            after = "" if cause is None or doing is cause else f" after {_name(cause)}"
            raise CoreFault(f"{where}{after}: {type(error).__name__}: {error}") from error
        self._busy = False

    def _late(self, call: Callable[..., None], *said: object) -> None:
        """What had to wait for its turn has it."""
        self._busy = False
        call(*said)
        self._busy, self._told = True, False

    def _hear(self, event: Event) -> None:
        now = self._clock()
        self._prepare(event, now)
        self.last.note(event, now)
        self._core.handle(event, now)


def _name(doing: object) -> str:
    if isinstance(doing, str):
        return doing
    return "an answer" if isinstance(doing, tuple) else type(doing).__name__
