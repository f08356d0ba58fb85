"""Large inputs in blocks of a batch's size, and their answers joined or row by row, in order.

Only rows that may be joined are cut. A lane that may not join them answers `Stale`: then each goes as it came.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pool.client.channel import Stale
from pool.client.futures import Result, joined
from pool.client.knowledge import Request
from pool.errors import InvalidInput, ModelFailed, PoolError, Quarantined

__all__ = ["Send", "blocks_of", "in_blocks", "map_inputs", "map_rows", "piece", "rows_of"]

Arrays = list[NDArray[Any]]
Send = Callable[[dict[str, NDArray[Any]], bool], "Future[Result]"]
"""Submits inputs, as a block or as they are."""


def blocks_of(request: Request) -> int:
    """Rows of a block, or 0 if the job is to be sent as it is."""
    prepared = request.prepared
    signature = prepared.signature
    return signature.max_batch if signature.is_joined and prepared.rows > signature.max_batch else 0


def in_blocks(inputs: dict[str, NDArray[Any]], rows: int, block: int, send: Send) -> Result:
    """One result of a call that is cut. An error of any block is the call's."""
    parts = [
        send({name: array[at : at + block] for name, array in inputs.items()}, True) for at in range(0, rows, block)
    ]
    try:
        results = [part.result() for part in parts]
        if len({result.version for result in results}) == 1:
            return joined(results)
    except Stale:
        pass
    finally:
        for part in parts:
            part.cancel()
    return send(inputs, False).result()


def map_inputs(inputs: Iterable[Any], in_flight: int, send: Callable[[Any], "Future[Result]"]) -> Iterator[Result]:
    """The results of single jobs, in order."""
    waiting: deque[Future[Result]] = deque()
    try:
        for each in inputs:
            waiting.append(send(each))
            if len(waiting) >= in_flight:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


def map_rows(inputs: Mapping[str, Any], block: int, in_flight: int, send: Send) -> Iterator[Result]:
    """The result of each row of arrays, in order."""
    arrays = {name: np.asarray(array) for name, array in inputs.items()}
    rows = rows_of(arrays)
    waiting: deque[tuple[Future[Result], int, int]] = deque()
    try:
        for begin in range(0, rows, block):
            end = min(begin + block, rows)
            waiting.append((send(piece(arrays, begin, end), end - begin > 1), begin, end))
            if len(waiting) >= in_flight:
                yield from _rows(arrays, *waiting.popleft(), send)
        while waiting:
            yield from _rows(arrays, *waiting.popleft(), send)
    finally:
        for future, _, _ in waiting:
            future.cancel()


def rows_of(arrays: dict[str, NDArray[Any]]) -> int:
    """Raises `InvalidInput` where the arrays do not have as many rows each."""
    lengths = {len(array) if array.ndim else 0 for array in arrays.values()}
    if len(lengths) != 1:
        raise InvalidInput(f"arrays of {sorted(lengths)} rows; give arrays of one length")
    return lengths.pop()


def piece(arrays: dict[str, NDArray[Any]], begin: int, end: int) -> dict[str, NDArray[Any]]:
    return {name: array[begin:end] for name, array in arrays.items()}


def _rows(
    arrays: dict[str, NDArray[Any]], future: "Future[Result]", begin: int, end: int, send: Send
) -> Iterator[Result]:
    """A failed block is halved until the guilty row raises; those before it have been given by then."""
    count = end - begin
    try:
        result = future.result()
    except PoolError as error:
        if count == 1 or not isinstance(error, Stale | ModelFailed | InvalidInput | Quarantined):
            raise
        size = 1 if isinstance(error, Stale) else (count + 1) // 2
        parts = [(at, min(at + size, end)) for at in range(begin, end, size)]
        futures = [send(piece(arrays, at, to), to - at > 1) for at, to in parts]
        for part, (at, to) in zip(futures, parts, strict=True):
            yield from _rows(arrays, part, at, to, send)
        return
    if count == 1:
        yield result
        return
    for index in range(count):
        yield result.row(index)
