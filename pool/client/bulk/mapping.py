"""`Client.map`: inputs of one shape leave together, as many as queue up while the pool is busy with those before.

inputs ─► pack ─┬─ no other pack is out, or it is full, or inputs come slowly ─► sent ─► results
                └─ else the next one joins it
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from pool.client.bulk.answers import Answers
from pool.client.bulk.pack import Pack
from pool.client.bulk.slabs import are_rows, fits_a_slab, mapped_rows
from pool.client.connection import Connection
from pool.client.futures import JobFuture
from pool.client.payload import Inputs, encode_call, to_inputs
from pool.client.request import Request
from pool.errors import PoolError
from pool.wire.tensors import Array

__all__ = ["mapped"]

SLOW_S = 0.001  # inputs that take longer to come wait for no company
PACKS = 2  # of what may be in flight, so that some run while others are gathered


class _Turn(Protocol):
    """What one or more of the inputs wait for that were given one after the other."""

    @property
    def failed(self) -> bool:
        """Whether one of them has, as far as it is known by now."""
        ...

    def results(self) -> Iterator[dict[str, Array]]:
        """In their order; raises the `PoolError` of the first that has failed in its place."""
        ...

    def cancel(self) -> object: ...


def mapped(
    connected: Callable[[], Connection], request: Request, inputs: Iterable[object], in_flight: int
) -> Iterator[dict[str, Array]]:
    """As `Client.map` says. `connected` may raise `PoolError`, which is raised in its turn."""
    if are_rows(inputs) and fits_a_slab(connected, request, inputs):
        yield from mapped_rows(connected, request, inputs, in_flight)
        return
    gatherer = _Gatherer(connected, request, in_flight)
    turns = gatherer.turns
    results = gatherer.results()
    waiting = 0
    asked = time.monotonic()
    try:
        for item in inputs:
            gatherer.add(item, slow=time.monotonic() - asked > SLOW_S)
            waiting += 1
            if turns[0].failed or turns[-1].failed:
                break  # each further submit to a pool that is gone would wait for it in vain
            if waiting >= in_flight:
                yield next(results)
                waiting -= 1
            asked = time.monotonic()
        gatherer.flush()
        yield from results
    finally:
        for turn in turns:
            turn.cancel()


class _Gatherer:
    """`turns`: those that have not given all their results yet, the oldest first."""

    def __init__(self, connected: Callable[[], Connection], request: Request, in_flight: int) -> None:
        self.turns: deque[_Turn] = deque()
        self._connected = connected
        self._request = request
        self._in_flight = in_flight
        self._pack: Pack | None = None
        self._answers: Answers | None = None  # of the pack
        self._out: deque[Answers] = deque()

    def add(self, item: object, slow: bool) -> None:
        pack = self._pack
        if pack is None or not pack.take(item):
            try:
                inputs = to_inputs(self._request.model, item)
                connection = self._connected()
                if not Pack.fits_any(inputs, connection.arenas):
                    self.flush()
                    self.turns.append(self._alone(inputs))
                    return
                if pack is None or not pack.fits(inputs):
                    self.flush()
                    grain = connection.grain
                    most_rows = min(max(1, self._in_flight // PACKS), grain.rows(self._request))
                    pack = self._pack = Pack(inputs, most_rows, connection.arenas, grain.most_bytes)
                    self._answers = Answers(connection.thread)
                    self.turns.append(_Packed(self._answers))
                else:
                    pack.add(inputs)
            except PoolError as error:
                self.flush()
                self.turns.append(_Refused(error))
                return
        if not self._is_busy() or slow or pack.is_full:
            self.flush()

    def results(self) -> Iterator[dict[str, Array]]:
        """Of all that is added, also meanwhile."""
        turns = self.turns
        while turns:
            turn = turns[0]
            if isinstance(turn, _Packed) and turn.answers is self._answers:
                self.flush()  # whoever waits for it now must not wait for what was not sent
            yield from turn.results()
            turns.popleft()

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
            answers.finish(range(len(answers.rows)), error)
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
        """Whether a pack is out: another one would mostly wait, and is larger for it. Forgets those that are back."""
        while self._out and self._out[0].all_ended:
            self._out.popleft()
        return bool(self._out)


class _Packed:
    __slots__ = ("answers",)

    def __init__(self, answers: Answers) -> None:
        self.answers = answers

    @property
    def failed(self) -> bool:
        return self.answers.some_failed

    def results(self) -> Iterator[dict[str, Array]]:
        return self.answers.results()

    def cancel(self) -> None:
        self.answers.withdraw(None)


class _Alone:
    def __init__(self, future: JobFuture) -> None:
        self._future = future

    @property
    def failed(self) -> bool:
        future = self._future
        return future.done() and not future.cancelled() and future.exception() is not None

    def results(self) -> Iterator[dict[str, Array]]:
        yield self._future.result()

    def cancel(self) -> None:
        self._future.cancel()


class _Refused:
    failed = True

    def __init__(self, error: PoolError) -> None:
        self._error = error

    def results(self) -> Iterator[dict[str, Array]]:
        raise self._error

    def cancel(self) -> None:
        pass
