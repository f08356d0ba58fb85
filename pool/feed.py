"""The way to the core and back: what happens is told, then comes one dispatch, and then all that the core wants done.

arrived, batch_done ─┐
event ─► waiting ────┴─► Machine ─► dispatch ─► order, order, … ─► done
            ▲                                       │
            └────────── spawned, unsent, … ◄────────┘
"""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from pool.core.events import Event, Failure
from pool.core.orders import Order, Orders
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


class Feed:
    """Used from the pool's loop. After a `CoreFault` the core hears of nothing any more.

    Jobs that arrived and batches that are done wait for `dispatch`, which the loop calls when it has read what was
    there. An event is rare, and dispatched at once.
    """

    def __init__(
        self,
        core: Core,
        prepare: Callable[[Event, float], None],
        act: Callable[[Order], None],
        done: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`prepare` is called before the core hears of an event, `act` for each order, `done` when no event waits."""
        self.last = LastEvents()
        self._core = core
        self._prepare = prepare
        self._act = act
        self._done = done
        self._clock = clock
        self._waiting: deque[tuple[object, Callable[[], None]]] = deque()
        self._busy = False
        self._told = False  # something of which nothing has followed yet

    def __call__(self, event: Event) -> None:
        """Has the core handle the event; what arises meanwhile is handled before this returns.

        Called while orders are being done, it returns at once, and the event waits for its turn.
        Raises `CoreFault`.
        """
        self._waiting.append((event, lambda: self._hear(event)))
        if not self._busy:
            self._go_on()

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
        members: tuple[int, ...] = (),
        version: int | str | None = None,
    ) -> None:
        """As `Machine.arrived`. Raises `CoreFault`."""
        asked = client, job, model, signature, outputs, rows, timeout_s, priority, device, size_bytes, form
        more = attempts, in_doubt, members, version
        if self._busy:
            self._waiting.append((ARRIVED, lambda: self._arrived(asked, payload, more)))
            return
        self._busy = self._told = True
        try:
            self._arrived(asked, payload, more)
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
            self._waiting.append((DONE, lambda: self._batch_done(done, payloads, failures, run_s, fetch_s)))
            return
        self._busy = self._told = True
        try:
            self._batch_done(done, payloads, failures, run_s, fetch_s)
        except Exception as error:
            raise CoreFault(f"{DONE}: {type(error).__name__}: {error}") from error
        self._busy = False

    def dispatch(self) -> None:
        """What follows from all that was told is done, and what arises meanwhile too, before this returns.

        Raises `CoreFault`.
        """
        if self._told and not self._busy:
            self._go_on()

    def _go_on(self) -> None:
        self._busy, self._told = True, False
        waiting, cause, doing, more = self._waiting, None, None, True
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
                    self._act(order)
            doing = None
            self._done()
        except Exception as error:
            where = "the answers" if doing is None else _name(doing)
            after = "" if cause is None or doing is cause else f" after {_name(cause)}"
            raise CoreFault(f"{where}{after}: {type(error).__name__}: {error}") from error
        self._busy = False

    def _hear(self, event: Event) -> None:
        now = self._clock()
        self._prepare(event, now)
        self.last.note(event, now)
        self._core.handle(event, now)

    def _arrived(self, asked: tuple[Any, ...], payload: object, more: tuple[Any, ...]) -> None:
        now = self._clock()
        self.last.arrived(now, asked, more)
        self._core.arrived(*asked, payload, *more, now)

    def _batch_done(
        self,
        done: tuple[int, int, int, int],
        payloads: Sequence[object],
        failures: Mapping[int, Failure],
        run_s: float,
        fetch_s: float,
    ) -> None:
        now = self._clock()
        self.last.batch_done(now, done, len(payloads), failures, run_s, fetch_s)
        self._core.batch_done(*done, payloads, failures, run_s, fetch_s, now)


def _name(doing: object) -> str:
    if isinstance(doing, str):
        return doing
    return "an answer" if isinstance(doing, tuple) else type(doing).__name__
