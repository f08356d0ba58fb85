"""`Client.map`: inputs of one form leave together, as many as queue up while the pool is busy with those before."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeGuard

import numpy as np

from pool.client.bulk.members import Answers, Members
from pool.client.bulk.sender import Sender
from pool.client.connection import Connection
from pool.client.request import Request
from pool.client.result import JobResult
from pool.client.wait import Wait
from pool.wire.tensors import Array

__all__ = ["are_rows", "mapped"]

SLOW_S = 0.001  # inputs that take longer to come wait for no company
GATHERED = 2  # of what may be in flight one in so many is gathered, so that some run meanwhile
STRETCHES = 4  # the same of an array's items: while some run, others are on their way


def mapped(
    connected: Callable[[], Connection], request: Request, inputs: Iterable[object], in_flight: int
) -> Iterator[JobResult]:
    """As `Client.map` says. `connected` may raise `PoolError`, which is raised in its turn."""
    turns: deque[Answers] = deque()  # those that have not given all their results yet, the oldest first

    def expect(rows: Sequence[int], connection: Connection | None) -> Members:
        turns.append(Answers(rows, connection.attend if connection else _over))
        return turns[-1]

    sender = Sender(connected, request, expect, most_rows=max(1, in_flight // GATHERED))
    results = _results(sender, turns)
    sent = _stretches(sender, inputs, in_flight) if are_rows(inputs) else _items(sender, inputs, turns)
    ahead = 0
    try:
        for count in sent:
            ahead += count
            if turns and (turns[0].some_failed or turns[-1].some_failed):
                break  # each further submit to a pool that is gone would wait for it in vain
            while ahead + count > in_flight:
                yield next(results)
                ahead -= 1
        sender.flush()
        yield from results
    finally:
        for answers in turns:
            answers.withdraw(None)


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


def _results(sender: Sender, turns: "deque[Answers]") -> Iterator[JobResult]:
    """Of all that is sent, also meanwhile."""
    while turns or sender.gathering:
        if not turns:
            sender.flush()  # whoever waits for it now must not wait for what was not sent
        yield from turns[0].results()
        turns.popleft()
