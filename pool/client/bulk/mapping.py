"""`map`: inputs of one form leave together, as many as queue up while the pool is busy with those before.

inputs ─► Ahead: `in_flight` of them are out ─► Answers, a chunk each ─► results, in the order of the inputs
              ▲                                                            │
              └──────────── draws a further one for each ◄─────────────────┘
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Generic, TypeGuard, TypeVar, cast

import numpy as np

from pool.client.bulk.members import Answers, Members
from pool.client.bulk.sender import Connected, Sender
from pool.client.connection import Connection
from pool.client.futures import JobFuture
from pool.client.request import Request
from pool.client.result import JobResult
from pool.client.wait import Wait
from pool.wire.tensors import Array

__all__ = ["are_rows", "mapped", "mapped_in_loop"]

SLOW_S = 0.001  # inputs that take longer to come wait for no company
GATHERED = 2  # of what may be in flight one in so many is gathered, so that some run meanwhile
STRETCHES = 4  # the same of an array's items: while some run, others are on their way

Turn = TypeVar("Turn", bound=Answers)


class Awaited(Answers):
    """A chunk whose caller is a task."""

    def __init__(self, rows: Sequence[int]) -> None:
        super().__init__(rows, _over)
        self._told = JobFuture()

    def tell(self) -> None:
        super().tell()
        if self.all_ended:
            self._told.finish(JobResult())

    async def ended(self) -> None:
        if not self.all_ended:
            await asyncio.wrap_future(self._told)


class Ahead(Generic[Turn]):
    """What is sent and not given yet."""

    def __init__(
        self,
        connected: Connected,
        request: Request,
        inputs: Iterable[object],
        in_flight: int,
        turn: Callable[[Sequence[int], Connection | None], Turn],
        *,
        wait: bool,
    ) -> None:
        """Sends the first. Raises what `inputs` raises. `wait`: for room in the pool."""
        self._turns = turns = deque[Turn]()  # those that have not given all their results yet, the oldest first

        def expect(rows: Sequence[int], connection: Connection | None) -> Members:
            turns.append(turn(rows, connection))
            return turns[-1]

        self._sender = sender = Sender(
            connected, request, expect, most_rows=max(1, in_flight // GATHERED), patient=True, wait=wait
        )
        self._sent = _stretches(sender, inputs, in_flight) if are_rows(inputs) else _items(sender, inputs, turns)
        self._in_flight = in_flight
        self._out, self._last = 0, 1  # inputs: sent or gathered, and those of the last time
        try:
            self._send()
            sender.flush()
        except BaseException:
            self.withdraw()
            raise

    def next(self) -> Turn | None:
        """Whose results are the next; None after the last."""
        if not self._turns:
            self._sender.flush()  # whoever waits for it now must not wait for what was not sent
        return self._turns[0] if self._turns else None

    def given(self) -> None:
        """One of the results: there is room for a further input."""
        self._out -= 1
        self._send()

    def all_given(self) -> None:
        """Those of the oldest."""
        self._turns.popleft()

    def withdraw(self) -> None:
        """Nobody wants the rest."""
        for answers in self._turns:
            answers.withdraw(None)

    __del__ = withdraw  # where nobody has asked for the first result

    def _send(self) -> None:
        turns = self._turns
        while self._out + self._last <= self._in_flight:
            if turns and (turns[0].some_failed or turns[-1].some_failed):
                self._sent = iter(())  # each further submit to a pool that is gone would wait for it in vain
            count = next(self._sent, 0)
            if not count:
                self._sender.flush()
                return
            self._out += count
            self._last = count


def mapped(connected: Connected, request: Request, inputs: Iterable[object], in_flight: int) -> Iterator[JobResult]:
    """As `Client.map` says. An error that `connected` raises is raised in its turn, or at once."""

    def turn(rows: Sequence[int], connection: Connection | None) -> Answers:
        return Answers(rows, connection.attend if connection else _over)

    given = _given(Ahead(connected, request, inputs, in_flight, turn, wait=True))
    next(given)  # the end of one that has not begun does not run when it is closed
    return cast(Iterator[JobResult], given)


def _given(ahead: Ahead[Answers]) -> Iterator[JobResult | None]:
    try:
        yield None
        while (answers := ahead.next()) is not None:
            for result in answers.results():
                yield result
                ahead.given()
            ahead.all_given()
    finally:
        ahead.withdraw()


def mapped_in_loop(
    connected: Connected, request: Request, inputs: Iterable[object], in_flight: int
) -> AsyncIterator[JobResult]:
    """As `AsyncClient.map` says."""
    return _awaited(Ahead(connected, request, inputs, in_flight, lambda rows, _: Awaited(rows), wait=False))


async def _awaited(ahead: Ahead[Awaited]) -> AsyncIterator[JobResult]:
    try:
        while (answers := ahead.next()) is not None:
            await answers.ended()
            for result in answers.results():
                yield result
                ahead.given()
            ahead.all_given()
    finally:
        ahead.withdraw()


def _over(_: Wait) -> None:
    """There is no connection, so they are all refused."""


def are_rows(inputs: object) -> TypeGuard[Array]:
    """Whether each item of `inputs` is an array of rows that lies beside the next."""
    return type(inputs) is np.ndarray and inputs.ndim >= 2 and inputs.dtype.kind in "biufc" and bool(inputs[:1].nbytes)


def _stretches(sender: Sender, array: Array, in_flight: int) -> Iterator[int]:
    """How many items were sent each time."""
    begin = 0
    while begin < len(array):
        count = sender.stretch(array[begin:], max(1, in_flight // STRETCHES))
        begin += count
        yield count


def _items(sender: Sender, inputs: Iterable[object], turns: Sequence[Answers]) -> Iterator[int]:
    """Each is gathered while a chunk is out: another one would mostly wait, and is larger for it."""
    asked = time.monotonic()
    for item in inputs:
        slow = time.monotonic() - asked > SLOW_S
        sender.add(item)
        if slow or not turns or turns[-1].all_ended:
            sender.flush()
        yield 1
        asked = time.monotonic()
