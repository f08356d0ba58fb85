"""`Client.submit_many`: inputs of one shape travel together, in packs that take a moment to run."""

import time
from collections.abc import Callable, Iterable
from functools import partial

from pool.client.bulk.members import Futures
from pool.client.bulk.pack import Pack
from pool.client.connection import Connection
from pool.client.futures import JobFuture
from pool.client.payload import encode_call, to_inputs
from pool.client.request import Request
from pool.errors import PoolError

__all__ = ["submit_many"]


def submit_many(
    connected: Callable[[], Connection], request: Request, inputs: Iterable[object], *, patient: bool
) -> list[JobFuture]:
    """A future for each, in their order; an error that one has is its future's."""
    many = _Many(connected, request, patient)
    for item in inputs:
        many.add(item)
    many.flush()
    return many.futures


class _Many:
    def __init__(self, connected: Callable[[], Connection], request: Request, patient: bool) -> None:
        self.futures: list[JobFuture] = []
        self._connected = connected
        self._request = request
        self._patient = patient
        self._pack: Pack | None = None
        self._began = 0.0

    def add(self, item: object) -> None:
        began = time.monotonic()
        try:
            inputs = to_inputs(self._request.model, item)
            connection = self._connected()
            if not Pack.fits_any(inputs, connection.arenas):
                self.flush()
                rows, payload = encode_call(self._request.model, inputs, connection.arenas)
                future = connection.submit(self._request, rows, payload, began, patient=self._patient)
                self.futures.append(future)
                return
        except PoolError as error:
            self.flush()
            self.futures.append(JobFuture())
            self.futures[-1].finish(error)
            return
        if self._pack is not None and self._pack.fits(inputs):
            self._pack.add(inputs)
        else:
            self.flush()
            grain = connection.grain
            self._pack = Pack(inputs, grain.rows(self._request), connection.arenas, grain.most_bytes)
            self._began = began
        if self._pack.is_full:
            self.flush()

    def flush(self) -> None:
        pack, self._pack = self._pack, None
        if pack is None:
            return
        withdrawals: list[Callable[[int], object]] = []  # one, as soon as the pack is made
        try:
            connection = self._connected()
            futures = [
                JobFuture(partial(_withdraw, withdrawals, index), connection.thread) for index in range(len(pack.rows))
            ]
            rows, payload = encode_call(self._request.model, pack.inputs(), connection.arenas)
        except PoolError as error:
            futures = [JobFuture() for _ in pack.rows]
            Futures(futures, pack.rows).finish(range(len(futures)), error, None)
            self.futures += futures
            return
        self.futures += futures
        members = Futures(futures, pack.rows)
        withdrawals.append(
            connection.submit_pack(self._request, rows, payload, self._began, members, patient=self._patient)
        )


def _withdraw(withdrawals: list[Callable[[int], object]], index: int) -> None:
    for withdraw in withdrawals:
        withdraw(index)
