"""`Client.map`: inputs of one shape leave together, as many as queue up while the pool is busy with those before.

inputs ─► pack ─┬─ no other pack is out, or it is full, or inputs come slowly ─► sent ─► results
                └─ else the next one joins it
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from pool.client.answers import Answers
from pool.client.connection import Connection
from pool.client.futures import JobFuture
from pool.client.pack import Pack
from pool.client.payload import Inputs, encode_call, to_inputs
from pool.client.request import Request
from pool.client.slabs import are_rows, fits_a_slab, mapped_rows
from pool.errors import PoolError
from pool.wire.tensors import Array

__all__ = ["mapped"]

SLOW_S = 0.001  # inputs that take longer to come wait for no company
PACKS = 2  # of what may be in flight, so that some run while others are gathered


class _Turn(Protocol):
    def result(self) -> dict[str, Array]: ...

    def has_failed(self) -> bool: ...

    def cancel(self) -> object: ...


def mapped(
    connected: Callable[[], Connection], request: Request, inputs: Iterable[object], in_flight: int
) -> Iterator[dict[str, Array]]:
    """As `Client.map` says. `connected` may raise `PoolError`, which is raised in its turn."""
    if are_rows(inputs) and fits_a_slab(connected, request, inputs):
        yield from mapped_rows(connected, request, inputs, in_flight)
        return
    waiting: deque[_Turn] = deque()
    gatherer = _Gatherer(connected, request, in_flight)
    asked = time.monotonic()
    try:
        for item in inputs:
            waiting.append(gatherer.add(item, slow=time.monotonic() - asked > SLOW_S))
            if waiting[0].has_failed() or waiting[-1].has_failed():
                break  # each further submit to a pool that is gone would wait for it in vain
            if len(waiting) >= in_flight:
                gatherer.flush_if_held(waiting[0])
                yield waiting.popleft().result()
            asked = time.monotonic()
        gatherer.flush()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for turn in waiting:
            turn.cancel()


class _Gatherer:
    def __init__(self, connected: Callable[[], Connection], request: Request, in_flight: int) -> None:
        self._connected = connected
        self._request = request
        self._in_flight = in_flight
        self._pack: Pack | None = None
        self._answers: Answers | None = None  # of the pack
        self._out: deque[Answers] = deque()

    def add(self, item: object, slow: bool) -> _Turn:
        if self._pack is None or self._answers is None or not self._pack.take(item):
            try:
                inputs = to_inputs(self._request.model, item)
                connection = self._connected()
                if not Pack.fits_any(inputs, connection.arenas):
                    self.flush()
                    return self._alone(inputs)
                if self._pack is None or self._answers is None or not self._pack.fits(inputs):
                    self.flush()
                    most_rows = min(max(1, self._in_flight // PACKS), connection.grain.rows(self._request))
                    self._pack = Pack(inputs, most_rows, connection.arenas)
                    self._answers = Answers(connection.thread)
                else:
                    self._pack.add(inputs)
            except PoolError as error:
                return _Refused(error)
        turn = _Member(self._answers, len(self._pack.rows) - 1)
        if slow or self._pack.filled >= self._pack.most_rows or not self._is_busy():
            self.flush()
        return turn

    def flush_if_held(self, turn: _Turn) -> None:
        """Whoever waits for this turn now must not wait for what was not sent."""
        if isinstance(turn, _Member) and turn.answers is self._answers:
            self.flush()

    def flush(self) -> None:
        pack, answers = self._pack, self._answers
        self._pack = self._answers = None
        if pack is None or answers is None:
            return
        began = time.monotonic()
        answers.begin(pack.rows)
        try:
            connection = self._connected()
            rows, payload = encode_call(self._request.model, pack.inputs(), connection.arenas)
        except PoolError as error:
            answers.finish(error)
            return
        answers.withdraw = connection.submit_pack(
            self._request, rows, payload, began, answers, patient=True, until=answers.over
        )
        self._out.append(answers)

    def _alone(self, inputs: Inputs) -> _Turn:
        began = time.monotonic()
        connection = self._connected()
        rows, payload = encode_call(self._request.model, inputs, connection.arenas)
        return _Alone(connection.submit(self._request, rows, payload, began, patient=True, wait=True))

    def _is_busy(self) -> bool:
        """Whether a pack is out: another one would mostly wait, and is larger for it."""
        while self._out and self._out[0].all_ended:
            self._out.popleft()
        return bool(self._out)


class _Member:
    __slots__ = ("_index", "answers")

    def __init__(self, answers: Answers, index: int) -> None:
        self.answers = answers
        self._index = index

    def result(self) -> dict[str, Array]:
        return self.answers.result(self._index)

    def has_failed(self) -> bool:
        return self.answers.some_failed and self.answers.has_failed(self._index)

    def cancel(self) -> None:
        self.answers.withdraw(None)


class _Alone:
    def __init__(self, future: JobFuture) -> None:
        self._future = future

    def result(self) -> dict[str, Array]:
        return self._future.result()

    def has_failed(self) -> bool:
        future = self._future
        return future.done() and not future.cancelled() and future.exception() is not None

    def cancel(self) -> None:
        self._future.cancel()


class _Refused:
    def __init__(self, error: PoolError) -> None:
        self._error = error

    def result(self) -> dict[str, Array]:
        raise self._error

    def has_failed(self) -> bool:
        return True

    def cancel(self) -> None:
        pass
