"""`Client.map` over one array whose items are the inputs: consecutive ones leave together, and none is looked at alone.

array ─► slabs of some hundred rows ─► a job each, a few at a time ─► the rows of its answer, one input's after another
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TypeGuard

import numpy as np

from pool.client.bulk.answers import Answers
from pool.client.bulk.pack import Pack
from pool.client.connection import Connection
from pool.client.payload import encode_call, to_inputs
from pool.client.request import Request
from pool.wire.tensors import Array

__all__ = ["are_rows", "fits_a_slab", "mapped_rows"]

AT_ONCE = 4  # slabs that are out: while some run, others are on their way


def are_rows(inputs: object) -> TypeGuard[Array]:
    """Whether each item of `inputs` is an array of rows that lies beside the next."""
    return type(inputs) is np.ndarray and inputs.ndim >= 2 and inputs.dtype.kind in "biufc" and bool(inputs[:1].nbytes)


def mapped_rows(
    connected: Callable[[], Connection], request: Request, inputs: Array, in_flight: int
) -> Iterator[dict[str, Array]]:
    """As `Client.map` says; REQUIRES `are_rows(inputs)`, and that one of them `fits_a_slab`."""
    out: deque[Answers] = deque()
    sent = ahead = 0
    try:
        while sent < len(inputs) or out:
            while sent < len(inputs) and len(out) < AT_ONCE and not any(each.some_failed for each in out):
                connection = connected()
                count = min(_items(connection, request, inputs, in_flight), in_flight - ahead)
                if count < 1:
                    break
                out.append(_send(connection, request, inputs[sent : sent + count]))
                sent, ahead = sent + count, ahead + count
            answers = out[0]
            yield from answers.results()
            out.popleft()
            ahead -= len(answers.rows)
    finally:
        for answers in out:
            answers.withdraw(None)


def fits_a_slab(connected: Callable[[], Connection], request: Request, inputs: Array) -> bool:
    """Whether it is worth sending several of the items as one."""
    return Pack.fits_any(to_inputs(request.model, inputs[0]), connected().arenas)


def _items(connection: Connection, request: Request, inputs: Array, in_flight: int) -> int:
    """How many of them make a slab: as many as run in a moment, of what may be in flight."""
    grain = connection.grain
    rows = min(grain.rows(request), int(grain.most_bytes / max(1, inputs[0, :1].nbytes)))
    return max(1, min(in_flight // AT_ONCE, rows // int(inputs.shape[1])))


def _send(connection: Connection, request: Request, items: Array) -> Answers:
    began = time.monotonic()
    count, height = items.shape[:2]
    answers = Answers(connection.thread)
    answers.begin((height,) * count)
    joined = to_inputs(request.model, items.reshape(count * height, *items.shape[2:]))
    rows, payload = encode_call(request.model, joined, connection.arenas)
    answers.withdraw = connection.submit_pack(request, rows, payload, began, answers, patient=True, until=answers.over)
    return answers
