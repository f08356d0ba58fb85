"""The way of a job through the pool: read a frame, one call, write a frame.

    client ─ SUBMIT ─► hear_clients ─► core.arrived ───┐
    worker ─ DONE ───► hear_workers ─► core.batch_done ┴─► dispatch ─► core.dispatch ─► its orders, one by one:

        a batch             ─► Back.run   ─ RUN ────► worker
        a job that is done  ─► Front.done ─ RESULT ─► client
        what is rare        ─► act                            exit, signal, alarm, … ─► core.handle ─► dispatch

`hear_clients` and `hear_workers` are called when something is there to be read, and `dispatch` once in each turn of the
loop, when all that was there was read. An event is rare, and dispatched at once.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from pool.core import Batch, Orders
from pool.core.actions import Action
from pool.core.events import ClientGone, Event, Failed, Failure, Spoiled
from pool.core.queue import Backlog
from pool.recorder import DISPATCHED, LastEvents
from pool.serve.back import Back, CannotSay
from pool.serve.front import Asked, Front
from pool.wire.faults import Fault

__all__ = ["Core", "CoreFault", "Way"]

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
    def backlog(self) -> Backlog: ...
    @property
    def handle(self) -> Callable[[Event, float], None]: ...
    @property
    def arrived(self) -> Callable[..., None]: ...
    @property
    def batch_done(self) -> Callable[..., None]: ...
    @property
    def dispatch(self) -> Callable[[float], bool]: ...


class Way:
    """Used from the pool's loop. After a `CoreFault`, which each method may raise, the core hears of nothing any more.

    `front` and `back` are given before anything is heard of a client or a worker. `ended` is called after a dispatch
    where somebody waits for jobs to end.
    """

    front: Front
    back: Back
    ended: Callable[[], None] | None = None

    def __init__(
        self,
        core: Core,
        prepare: Callable[[Event, float], None],
        began: Callable[[Batch], None],
        act: Callable[[Action], None],
        unsent: Callable[[Batch], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`prepare` is called before the core hears of an event, `began` before a batch is sent, `act` for rare orders.

        `unsent` is called for a batch whose lane could not be reached; it tells the core.
        """
        self.last = LastEvents()
        self._core = core
        self._prepare = prepare
        self._began = began
        self._act = act
        self._unsent = unsent
        self._clock = clock
        self._waiting: deque[tuple[object, Callable[[], None]]] = deque()  # for the orders that are being done
        self._busy = False
        self._told = False  # something of which nothing has followed yet

    # --- in: read a frame, one call -------------------------------------------------------------------------------

    def hear_clients(self, index: int) -> None:
        """At most a turn's messages of one of the clients' sockets; there may be more."""
        front, now = self.front, self._clock()
        for route, frames in front.endpoints[index].inbox.turn():
            heard = front.heard((index, route), frames, now)
            if type(heard) is tuple:
                self.arrived(*heard, now)
            elif heard is not None:
                self(heard)  # type: ignore[arg-type]  # it is no tuple
                now = self._clock()  # for the core, time does not go back
                if type(heard) is ClientGone:  # answers that its burst brought about were counted once more
                    front.parted(heard.client)

    def hear_workers(self) -> None:
        """At most a turn's messages; there may be more."""
        back = self.back
        for route, frames in back.inbox.turn():
            heard = back.heard(route, frames)
            if type(heard) is tuple:
                self.batch_done(*heard)
            elif heard is not None:
                self(heard)  # type: ignore[arg-type]  # it is no tuple

    def arrived(self, asked: Asked, payload: object, more: tuple[object, ...], now: float) -> None:
        """The arguments of `Machine.arrived`: those before the payload, and those after it but the last."""
        if self._busy:  # no order brings a job
            return
        self._busy = self._told = True
        try:
            self.last.arrived(now, asked, more)
            self._core.arrived(*asked, payload, *more, now)
        except Exception as error:
            raise CoreFault(f"{ARRIVED}: {type(error).__name__}: {error}") from error
        self._busy = False

    def batch_done(
        self,
        done: tuple[int, int, int, int],
        payloads: Sequence[object],
        failures: Mapping[int, Failure],
        run_s: float,
        fetch_s: float,
    ) -> None:
        """`done`: slot, incarnation, lane and batch. As `Machine.batch_done`."""
        if self._busy:
            return
        self._busy = self._told = True
        try:
            self._end(done, payloads, failures, run_s, fetch_s)
        except Exception as error:
            raise CoreFault(f"{DONE}: {type(error).__name__}: {error}") from error
        self._busy = False

    def __call__(self, event: Event) -> None:
        """Has the core handle the event; what arises meanwhile is handled before this returns.

        Called while orders are being done, it returns at once, and the event waits for its turn.
        """
        self._waiting.append((event, partial(self._hear, event)))
        if not self._busy:
            self._told = True
            self.dispatch()

    # --- out: what the core wants done, write a frame -------------------------------------------------------------

    def dispatch(self) -> None:
        """What follows from all that was told is done, and what arises meanwhile too, before this returns."""
        if not self._told or self._busy:
            return
        self._busy, self._told = True, False
        front, last, orders, backlog = self.front, self.last, self._core.orders, self._core.backlog
        waiting, cause, doing, more, answered = self._waiting, None, None, True, False
        try:
            while waiting or more:
                if waiting:
                    cause, hear = waiting.popleft()
                    doing = cause
                    hear()
                now = self._clock()
                last.noted += 1
                last.frequent.append((last.noted, now, DISPATCHED))
                more = self._core.dispatch(now)
                for order in orders.drain():
                    doing = order
                    if type(order) is Batch:
                        self._began(order)
                        try:
                            if not self.back.run(order):
                                self._unsent(order)
                        except CannotSay as error:
                            self._unsaid(order, str(error))
                    elif type(order) is tuple:
                        answered, front.waiting = True, backlog.held
                        front.done(*order)
                    else:
                        self._act(order)  # type: ignore[arg-type]  # neither of the others
            doing = None
            if answered:
                front.answered()
        except Exception as error:
            where = "the answers" if doing is None else _name(doing)
            after = "" if cause is None or doing is cause else f" after {_name(cause)}"
            raise CoreFault(f"{where}{after}: {type(error).__name__}: {error}") from error
        self._busy = False
        if self.ended is not None:
            self.ended()

    def _unsaid(self, batch: Batch, why: str) -> None:
        """As if the worker had said so: among several the guilty one is found, and the lane is free again."""
        parts = len(batch.parts)
        failures = dict.fromkeys(range(parts), (Spoiled if parts > 1 else Failed)(Fault.INVALID_INPUT, why))
        done = batch.slot, batch.incarnation, batch.lane, batch.number
        self._waiting.append((DONE, partial(self._end, done, (None,) * parts, failures, 0.0, 0.0)))

    def _end(
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

    def _hear(self, event: Event) -> None:
        now = self._clock()
        self._prepare(event, now)
        self.last.note(event, now)
        self._core.handle(event, now)


def _name(doing: object) -> str:
    if isinstance(doing, str):
        return doing
    return "an answer" if isinstance(doing, tuple) else type(doing).__name__
