"""Blocks of a batch's size, cut from large inputs or gathered from small ones; their answers, joined or row by row.

Only rows that may be joined travel so. A lane that may not join them says so, and then they go as they came.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from pool.client.channel import Stale
from pool.client.futures import Result
from pool.client.inputs import Plan, Planner, Request, Signatures, chosen, common_rows, convert
from pool.errors import InvalidInput, ModelFailed, PoolError, Quarantined
from pool.wire.bodies import BLOCK
from pool.wire.tensors import Array

__all__ = ["IN_FLIGHT", "Work", "joined"]

IN_FLIGHT = 64
BLOCKS_IN_FLIGHT = 4
MOST_BYTES = 64 << 20  # on the way: more would find no place in the shared memory
OF_ROWS = (InvalidInput, ModelFailed, Quarantined, Stale)  # errors that one row may cause

Submit = Callable[[Plan, list[Array], float, int, int], Any]


class Piece(NamedTuple):
    inputs: Any
    rows: int = 1
    flags: int = 0
    nbytes: int = 0
    weight: int = 1
    """Of `in_flight`."""


class Work:
    """Pieces on their way, so many at a time, and what they give, in order. Whoever waits for them drives it."""

    def __init__(self, submit: Submit, planner: Planner, request: Request, timeout_s: float, known: Signatures) -> None:
        """`submit` returns a future."""
        self._submit, self._planner, self._request, self._known = submit, planner, request, known
        self._timeout_s, self._until = timeout_s, math.inf
        self._source: Iterator[Piece] = iter(())
        self._in_flight = IN_FLIGHT
        self._window: deque[tuple[Piece, Any]] = deque()
        self._nbytes = self._flying = 0
        self._error: Exception | None = None
        """What the source raised. It is raised after the results of what came before it."""

    def map(self, inputs: Any, in_flight: int) -> None:
        """An iterable of inputs, or arrays: in blocks if their rows may be joined. Raises `InvalidInput`."""
        self._in_flight = in_flight
        if in_flight < 1:
            raise InvalidInput(f"in_flight={in_flight}: give 1 or more")
        signature, outputs = chosen(self._request, self._known), self._request.outputs
        if isinstance(inputs, Mapping | np.ndarray):
            arrays = convert(inputs, signature)
            rows = common_rows(arrays)
            if not rows and any(array.size for array in arrays.values()):
                raise InvalidInput("map: give arrays of one length")
            is_joined = signature.is_joined(arrays, [outputs] if isinstance(outputs, str) else outputs)
            self._source = blocks(arrays, rows, signature.max_batch if is_joined else 1)
        elif isinstance(inputs, Iterable) and not isinstance(inputs, str | bytes):
            self._source = self._gathered(inputs, max(1, in_flight // BLOCKS_IN_FLIGHT))
        else:
            raise InvalidInput("map: give an iterable of inputs, or a mapping of arrays")

    def _gathered(self, inputs: Iterable[Any], size: int) -> Iterator[Piece]:
        """Neighbours of one row each that look alike, as blocks of at most so many rows where they may be joined."""
        group: list[list[Array]] = []
        last: Any = None
        try:
            for each in inputs:
                plan, arrays = self._planner.prepare(self._request, each, self._known)
                if group and plan is not last:
                    yield gathered(last, group)
                    group = []
                group.append(arrays)
                last = plan
                if plan.rows != 1 or len(group) >= min(size, plan.most):
                    yield gathered(plan, group)
                    group = []
        except Exception:  # what came before it is answered first
            if group:
                yield gathered(last, group)
            raise
        if group:
            yield gathered(last, group)

    def cut(self, plan: Plan, arrays: list[Array]) -> None:
        """One call's inputs, which have its timeout together."""
        self._until = time.monotonic() + self._timeout_s
        inputs = dict(zip(plan.names, arrays, strict=True))
        self._source = blocks(inputs, common_rows(inputs), plan.block)

    def next(self) -> Any:
        """The future of the first piece that has not been taken; None: there is none left."""
        while self._flying < self._in_flight and self._nbytes < MOST_BYTES and self._error is None:
            try:
                piece = next(self._source, None)
                if piece is None:
                    break
                self._window.append(self._sent(piece))
            except Exception as error:
                self._error = error
        if not self._window and self._error is not None:
            raise self._error
        return self._window[0][1] if self._window else None

    @property
    def left_s(self) -> float:
        return max(0.0, min(self._timeout_s, self._until - time.monotonic()))

    def _sent(self, piece: Piece) -> tuple[Piece, Any]:
        plan, arrays = self._planner.prepare(self._request, piece.inputs, self._known)
        future = self._submit(plan, arrays, self.left_s, self._request.priority, piece.flags)
        self._nbytes += piece.nbytes
        self._flying += piece.weight
        return piece, future

    def take(self, outcome: "Result | PoolError") -> Result:
        """Of the first piece, whole. Raises its error; `Stale` if it is no answer to its rows."""
        piece, _ = self._window.popleft()
        self._nbytes -= piece.nbytes
        self._flying -= piece.weight
        if isinstance(outcome, PoolError):
            raise outcome
        if piece.flags and not all(array.ndim and len(array) == piece.rows for array in outcome.values()):
            raise Stale("the outputs have other rows than the inputs")
        return outcome

    def take_rows(self, outcome: "Result | PoolError") -> Iterator[Result]:
        """Of the first piece, row by row. If it failed, its halves are sent instead, down to the guilty row."""
        piece, _ = self._window[0]
        try:
            result = self.take(outcome)
        except OF_ROWS as error:
            if not piece.flags:
                raise
            size = 1 if isinstance(error, Stale) else (piece.rows + 1) // 2
            again = [self._sent(each) for each in blocks(piece.inputs, piece.rows, size)]
            self._window.extendleft(reversed(again))
            return
        if not piece.flags:
            yield result
            return
        for row in zip(*[array[:, np.newaxis] for array in result.values()], strict=True):
            yield derived(result, zip(result, row, strict=True))

    def cancel(self) -> None:
        for _, future in self._window:
            future.cancel()


def blocks(arrays: Mapping[str, Array], rows: int, size: int) -> Iterator[Piece]:
    for at in range(0, rows, size):
        part = {name: array[at : at + size] for name, array in arrays.items()}
        count = min(size, rows - at)
        yield Piece(part, count, BLOCK if count > 1 else 0, sum(array.nbytes for array in part.values()))


def gathered(plan: Plan, group: list[list[Array]]) -> Piece:
    arrays = group[0] if len(group) == 1 else [np.concatenate(column) for column in zip(*group, strict=True)]
    inputs = dict(zip(plan.names, arrays, strict=True))
    count = len(group)
    return Piece(inputs, count, BLOCK if count > 1 else 0, sum(array.nbytes for array in arrays), count)


def derived(result: Result, arrays: "Mapping[str, Array] | Iterable[tuple[str, Array]]") -> Result:
    made = Result(arrays)
    made.slot, made.device, made.version, made.timeline = result.slot, result.device, result.version, result.timeline
    return made


def joined(parts: list[Result]) -> Result:
    """One below the other; slot and times are the last one's."""
    return derived(parts[-1], {name: np.concatenate([part[name] for part in parts]) for name in parts[0]})
