"""Blocks of a batch's size, cut from large inputs or gathered from small ones; their answers, joined or row by row.

Only rows that may be joined travel so. A lane that may not join them says so, and then they go as they came. At the end
are the calls on all slots that serve a model. An `AsyncClient` awaits what their steps yield, before it sends it back.
"""

import math
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from functools import reduce as folded
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from pool.client.channel import Result, Stale
from pool.client.driver import Driver
from pool.client.inputs import Options, Plan, Request, Signatures, chosen, convert
from pool.errors import InvalidInput, ModelFailed, Quarantined
from pool.wire.bodies import BLOCK
from pool.wire.signatures import Signature
from pool.wire.specs import common_rows
from pool.wire.tensors import DTYPE_NAMES, Array

IN_FLIGHT = 64
BLOCKS_IN_FLIGHT = 4
MOST_BYTES = 64 << 20  # on the way: more would find no place in the shared memory
OF_ROWS = (InvalidInput, ModelFailed, Quarantined, Stale)  # errors that one row may cause

Jobs = Sequence[tuple[Any, Options]]  # inputs, and options of `submit`
Steps = Generator[Any, Any, Any]


class Piece(NamedTuple):
    inputs: Mapping[str, Array]
    rows: int


class Work:
    """Pieces on their way, so many at a time, and what they give, in order."""

    def __init__(self, driver: Driver[Any], request: Request, known: Signatures) -> None:
        """Raises `InvalidInput`."""
        self._driver, self._planner, self._request, self._known = driver, driver.connector.planner, request, known
        self._timeout_s, self._until = request.timeout_s(driver.connector.timeout_s), math.inf
        self._window: deque[tuple[Piece, int, Any]] = deque()
        self._nbytes = self._flying = 0

    def map(self, inputs: Any, in_flight: int) -> Iterator[Any]:
        """Sends an iterable of inputs, or arrays: in blocks if their rows may be joined. Raises `InvalidInput`."""
        if in_flight < 1:
            raise InvalidInput(f"in_flight={in_flight}: give 1 or more")
        signature, outputs = chosen(self._request, self._known), self._request.outputs
        if isinstance(inputs, Mapping | np.ndarray):
            arrays = convert(inputs, signature)
            rows = common_rows([array.shape for array in arrays.values()])
            if not rows and any(array.size for array in arrays.values()):
                raise InvalidInput("map: give arrays of one length")
            is_joined = signature.is_joined(arrays, [outputs] if isinstance(outputs, str) else outputs)
            size = signature.max_batch if is_joined else 1
            return self._futures(blocks(arrays, rows, size), in_flight * size)
        if isinstance(inputs, Iterable) and not isinstance(inputs, str | bytes):
            return self._futures(self._gathered(inputs, max(1, in_flight // BLOCKS_IN_FLIGHT)), in_flight)
        raise InvalidInput("map: give an iterable of inputs, or a mapping of arrays")

    def _gathered(self, inputs: Iterable[Any], size: int) -> Iterator[Piece]:
        """Neighbours of one row each that look alike, as blocks of at most so many rows where they may be joined."""
        for plan, alike in groupby(self._prepared(inputs), itemgetter(0)):
            if isinstance(plan, Exception):
                raise plan
            most = max(1, min(size, plan.most)) if plan.rows == 1 else 1
            while group := [arrays for _, arrays in islice(alike, most)]:
                columns = group[0] if len(group) == 1 else [np.concatenate(each) for each in zip(*group, strict=True)]
                yield Piece(dict(zip(plan.names, columns, strict=True)), len(group))

    def _prepared(self, inputs: Iterable[Any]) -> Iterator[tuple[Plan | Exception, list[Array]]]:
        """An error comes in its place: what came before it is answered first."""
        try:
            for each in inputs:
                yield self._planner.prepare(self._request, each, self._known)
        except Exception as error:
            yield error, []

    def cut(self, plan: Plan, arrays: list[Array]) -> Iterator[Any]:
        """Sends one call's inputs, which have its timeout together."""
        self._until = time.monotonic() + self._timeout_s
        pieces = blocks(dict(zip(plan.names, arrays, strict=True)), plan.rows, plan.most)
        return self._futures(pieces, IN_FLIGHT * plan.most)

    def _futures(self, pieces: Iterator[Piece], rows: int) -> Iterator[Any]:
        """The future of the first piece, until all were taken. At its end, however it comes, the others are cancelled.

        A piece is sent while fewer than so many rows are on the way. An error of the pieces is raised after the results
        of what came before it.
        """
        end: Exception | None = None
        try:
            while self._window or end is None:
                try:
                    while end is None and self._flying < rows and self._nbytes < MOST_BYTES:
                        self._window.append(self._sent(next(pieces)))
                except Exception as error:
                    end = error
                if self._window:
                    yield self._window[0][2]
            if end is not None and not isinstance(end, StopIteration):
                raise end
        finally:
            for _, _, future in self._window:
                future.cancel()

    @property
    def left_s(self) -> float:
        return max(0.0, min(self._timeout_s, self._until - time.monotonic()))

    def _sent(self, piece: Piece) -> tuple[Piece, int, Any]:
        plan, arrays = self._planner.prepare(self._request, piece.inputs, self._known)
        flags = BLOCK if piece.rows > 1 else 0
        future = self._driver.submit(plan, arrays, self.left_s, self._request.priority, flags)
        self._nbytes += plan.size
        self._flying += piece.rows
        return piece, plan.size, future

    def take(self) -> Result:
        """Of the first piece, whole. Raises its error; `Stale` if it is no answer to its rows."""
        piece, nbytes, future = self._window[0]
        error = future.exception()  # a thread waits for it here
        self._window.popleft()
        self._nbytes -= nbytes
        self._flying -= piece.rows
        if error is not None:
            raise error
        result: Result = future.result()
        if piece.rows > 1 and not all(array.ndim and len(array) == piece.rows for array in result.values()):
            raise Stale("the outputs have other rows than the inputs")
        return result

    def take_rows(self) -> Iterator[Result]:
        """Of the first piece, row by row. If it failed, its halves are sent instead, down to the guilty row."""
        piece = self._window[0][0]
        try:
            result = self.take()
        except OF_ROWS as error:
            if piece.rows == 1:
                raise
            size = 1 if isinstance(error, Stale) else (piece.rows + 1) // 2
            again = [self._sent(each) for each in blocks(piece.inputs, piece.rows, size)]
            self._window.extendleft(reversed(again))
            return
        if piece.rows == 1:
            yield result
            return
        for row in zip(*[array[:, np.newaxis] for array in result.values()], strict=True):
            yield derived(result, zip(result, row, strict=True))


def blocks(arrays: Mapping[str, Array], rows: int, size: int) -> Iterator[Piece]:
    for at in range(0, rows, size):
        yield Piece({name: array[at : at + size] for name, array in arrays.items()}, min(size, rows - at))


def derived(result: Result, arrays: "Mapping[str, Array] | Iterable[tuple[str, Array]]") -> Result:
    made = Result(arrays)
    made.slot, made.device, made.version, made.timeline = result.slot, result.device, result.version, result.timeline
    return made


def joined(parts: list[Result]) -> Result:
    """One below the other; slot and times are the last one's. Raises `Stale` for answers of two versions."""
    if any(part.version != parts[0].version for part in parts):
        raise Stale("the model's version changed between the parts")
    return derived(parts[-1], {name: np.concatenate([part[name] for part in parts]) for name in parts[0]})


def broadcasting(client: Any, request: Request, inputs: Any, options: Options) -> Steps:
    slots = (yield client.model(request.model, request.timeout))["slots"]
    jobs: Jobs = [(inputs, {**options, "version": None, "slot": slot}) for slot in slots]
    return dict(zip(slots, (yield client._all(request.model, jobs)), strict=True))


def scattering(client: Any, request: Request, batch: Any, reduce: str | None, options: Options) -> Steps:
    """What met two versions is asked again, until the call's time is over."""
    known = yield client._learned(request)
    until = time.monotonic() + request.timeout_s(client._connector.timeout_s)  # which the pool has told by now
    plan, arrays = client._connector.planner.prepare(request, batch, known)
    if not plan.rows and any(array.size for array in arrays):
        raise InvalidInput("scatter: give arrays of one length")
    if reduce is not None:
        check_reduce(chosen(request, known), request.outputs, reduce)
    while True:
        slots = (yield client.model(request.model, max(0.0, until - time.monotonic())))["slots"]
        count = max(1, min(len(slots), plan.rows))
        ends = [plan.rows * index // count for index in range(count + 1)]
        rest: Options = {**options, "version": None, "timeout": max(0.0, until - time.monotonic())}
        jobs: Jobs = [
            ({name: array[ends[at] : ends[at + 1]] for name, array in zip(plan.names, arrays, strict=True)}, rest)
            for at in range(count)
        ]
        parts = yield client._all(request.model, jobs)
        if all(part.version == parts[0].version for part in parts):
            return combined(parts, np.diff(ends).tolist(), reduce)


def check_reduce(info: Signature, outputs: Sequence[str] | None, reduce: str) -> None:
    """Raises `InvalidInput` for outputs that cannot be added, before anything runs."""
    if reduce not in ("sum", "mean"):
        raise InvalidInput(f'reduce={reduce!r:.80}: give None, "sum" or "mean"')
    for name in [outputs] if isinstance(outputs, str) else outputs or info.outputs:
        dtype = info.outputs[name].dtype
        if dtype in ("bool", "string") or (reduce == "mean" and dtype.startswith(("int", "uint"))):
            raise InvalidInput(f"output {name!r} of {dtype} has no {reduce}; name other outputs, such as outputs=['y']")


def combined(parts: list[Result], rows: list[int], reduce: str | None) -> Result:
    """Raises `InvalidInput` for outputs whose shapes do not fit."""
    for name in parts[0]:
        shapes = [part[name].shape for part in parts]
        if reduce is None and [shape[:1] for shape in shapes] != [(count,) for count in rows]:
            raise InvalidInput(f"output {name!r} has not the rows of its inputs: give reduce='sum' or 'mean'")
        if reduce is not None and len({*shapes}) > 1:
            raise InvalidInput(f"output {name!r}: shapes {shapes} of pieces cannot be added; give reduce=None")
    if reduce is None:
        return joined(parts)
    weights = [max(1, count) for count in rows] if reduce == "mean" else []
    return derived(parts[-1], {name: added([part[name] for part in parts], weights) for name in parts[0]})


def added(arrays: list[Array], weights: list[int]) -> Array:
    """Their sum in order, or with weights their mean."""
    dtype = arrays[0].dtype
    is_half = dtype.itemsize < 4 and "float" in DTYPE_NAMES[dtype]
    terms = [array.astype(np.float32) for array in arrays] if is_half else arrays
    if weights:
        terms = [term * weight for term, weight in zip(terms, weights, strict=True)]
    total = folded(np.add, terms)
    return np.asarray(total / sum(weights) if weights else total).astype(dtype)
