"""`Client.map`: inputs of one shape leave together, as many as queue up while the pool is busy with those before.

inputs ─► pack ─┬─ fewer than two packs are out, or it is full, or inputs come slowly ─► a pack ─► results
                └─ else the next one joins it
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from pool.client.connection import Connection
from pool.client.futures import JobFuture, PoolFuture
from pool.client.members import Members
from pool.client.pack import Pack
from pool.client.payload import Inputs, encode_call, to_inputs
from pool.client.request import Request
from pool.errors import PoolError
from pool.wire.tensors import Array

__all__ = ["mapped"]

SLOW_S = 0.001  # inputs that take longer to come wait for no company
PACKS = 4  # of what may be in flight, so that some run while others are gathered
BUSY = 2  # packs that are out: another one would only wait


class _Turn(Protocol):
    def result(self) -> dict[str, Array]: ...

    def has_failed(self) -> bool: ...

    def cancel(self) -> object: ...


def mapped(
    connected: Callable[[], Connection], request: Request, inputs: Iterable[object], in_flight: int
) -> Iterator[dict[str, Array]]:
    """As `Client.map` says. `connected` may raise `PoolError`, which is raised in its turn."""
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
        self._most_rows = max(1, in_flight // PACKS)
        self._pack: Pack | None = None
        self._answers: _Answers | None = None  # of the pack
        self._out: deque[_Answers] = deque()

    def add(self, item: object, slow: bool) -> _Turn:
        try:
            inputs = to_inputs(self._request.model, item)
            if not Pack.fits_any(inputs):
                self.flush()
                return self._alone(inputs)
            if self._pack is not None and not self._pack.fits(inputs):
                self.flush()
            connection = self._connected()
        except PoolError as error:
            return _Refused(error)
        if self._pack is None or self._answers is None:
            self._pack, self._answers = Pack(inputs), _Answers(connection.thread)
        else:
            self._pack.add(inputs)
        turn = _Member(self._answers, self._answers.expect())
        most = min(self._most_rows, connection.grain.rows(self._request))
        if slow or self._pack.filled >= most or not self._is_busy():
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
        members = Members(answers.cells, pack.rows, answers.end)
        try:
            connection = self._connected()
            rows, payload = encode_call(self._request.model, pack.inputs(), connection.arenas)
        except PoolError as error:
            members.finish(error)
            return
        answers.withdraw = connection.submit_pack(
            self._request, rows, payload, began, members, patient=True, until=answers.over
        )
        self._out.append(answers)

    def _alone(self, inputs: Inputs) -> _Turn:
        began = time.monotonic()
        connection = self._connected()
        rows, payload = encode_call(self._request.model, inputs, connection.arenas)
        return _Alone(connection.submit(self._request, rows, payload, began, patient=True, wait=True))

    def _is_busy(self) -> bool:
        while self._out and self._out[0].over.done():
            self._out.popleft()
        return len(self._out) >= BUSY


class _Cell:
    """One answer, kept until somebody comes for it."""

    __slots__ = ("result",)

    def __init__(self) -> None:
        self.result: dict[str, Array] | PoolError | None = None

    def finish(self, result: dict[str, Array] | PoolError, timeline: object = None) -> None:  # noqa: ARG002  # `map` shows none
        self.result = result

    def abandon_after_fork(self, error: PoolError) -> None:
        self.result = error


class _Answers:
    """Those of one pack; `over` is done when all are there."""

    def __init__(self, io_thread: threading.Thread) -> None:
        self.cells: list[_Cell] = []
        self.over: PoolFuture[None] = PoolFuture(io_thread)
        self.withdraw: Callable[[int | None], object] = lambda _: None

    def expect(self) -> int:
        """One more; which of them."""
        self.cells.append(_Cell())
        return len(self.cells) - 1

    def end(self) -> None:
        self.over.set_result(None)


class _Member:
    def __init__(self, answers: _Answers, index: int) -> None:
        self.answers = answers
        self._index = index

    def result(self) -> dict[str, Array]:
        self.answers.over.result()
        result = self.answers.cells[self._index].result
        if isinstance(result, PoolError):
            raise result
        assert result is not None
        return result

    def has_failed(self) -> bool:
        return isinstance(self.answers.cells[self._index].result, PoolError)

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
