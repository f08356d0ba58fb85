"""The inputs of one call leave in chunks: gathered one by one, or as stretches of one array.

inputs ─► gathering ─┬─ full, of another form, or flushed ─► chunk ─► sent
array ─► stretch ────┴───────────────────────────────────────┘
"""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from pool.client.bulk.gathering import Gathering, most_bytes_of
from pool.client.bulk.grain import MOST_ROWS
from pool.client.bulk.members import Futures, Members
from pool.client.connection import Connection
from pool.client.futures import JobFuture
from pool.client.payload import Inputs, encode_call, to_inputs
from pool.client.request import Request
from pool.errors import PoolError
from pool.wire.tensors import Array

__all__ = ["Connected", "Sender", "submit_many"]

Connected: TypeAlias = Callable[[Request], Connection]
Expect: TypeAlias = Callable[[Sequence[int], Connection | None], Members]


class Sender:
    """An error that an input has is its own, and so is one of the connection."""

    def __init__(
        self,
        connected: Connected,
        request: Request,
        expect: Expect,
        *,
        most_rows: int = MOST_ROWS,
        patient: bool,
        wait: bool = False,
    ) -> None:
        """`expect`: makes those who wait for members of so many rows each, of a connection if there is one.

        `most_rows` are gathered. `patient`, `wait`: as in `Connection.submit`.
        """
        self._connected = connected
        self._request = request
        self._expect = expect
        self._most_rows = most_rows
        self._patient = patient
        self._wait = wait
        self.gathering: Gathering | None = None
        self._gathers_for: Connection | None = None

    def add(self, item: object) -> None:
        """One input more. It is copied before this returns."""
        gathering = self.gathering
        if gathering is None or not gathering.take(item):
            try:
                inputs = to_inputs(self._request.model, item)
                if gathering is not None and gathering.fits(inputs):
                    gathering.add(inputs)
                else:
                    self.flush()
                    connection = self._connected(self._request)
                    most_rows = min(self._most_rows, connection.grain.rows(self._request))
                    gathering = Gathering(inputs, most_rows, connection.shared_memory, connection.grain.most_bytes)
                    self.gathering, self._gathers_for = gathering, connection
            except PoolError as error:
                self.flush()
                self._expect((0,), None).finish((0,), error)
                return
        if gathering.is_full:
            self.flush()

    def flush(self) -> None:
        """What is gathered leaves."""
        gathering, self.gathering = self.gathering, None
        if gathering is not None:
            self._send(gathering.rows, gathering.inputs, self._gathers_for)

    def stretch(self, array: Array, most: int) -> int:
        """Sends the first items of an array of rows, as they lie and `most` at most; how many. Raises `PoolError`."""
        connection = self._connected(self._request)
        items, height, row_bytes = 1, int(array.shape[1]), array[0, :1].nbytes
        if height * row_bytes <= most_bytes_of(connection.shared_memory):
            rows = min(connection.grain.rows(self._request), connection.grain.most_bytes // max(1, row_bytes))
            items = max(1, min(most, rows // height, len(array)))
        joined = array[:items].reshape(items * height, *array.shape[2:])
        self._send((height,) * items, lambda: to_inputs(self._request.model, joined), connection)
        return items

    def _send(self, rows: Sequence[int], inputs: Callable[[], Inputs], connection: Connection | None) -> None:
        """`connection`: that they were made for; another one where it has ended since."""
        began = time.monotonic()
        members = None
        try:
            if connection is None or connection.lost:
                connection = self._connected(self._request)
            members = self._expect(rows, connection)
            count, payload = encode_call(self._request.model, inputs(), connection.shared_memory)
        except PoolError as error:
            (members or self._expect(rows, None)).finish(range(len(rows)), error)
            return
        connection.submit_chunk(self._request, count, payload, began, members, patient=self._patient, wait=self._wait)


def submit_many(
    connected: Connected,
    request: Request,
    inputs: Iterable[object],
    *,
    patient: bool,
    apart: bool = False,
) -> list[JobFuture]:
    """As `Client.submit_many` says. A future for each, in their order; an error that one has is its future's.

    `apart`: they are to run side by side, so each leaves alone.
    """
    futures: list[JobFuture] = []

    def expect(rows: Sequence[int], connection: Connection | None) -> Members:
        members, made = Futures.made(rows, connection.driver if connection else None)
        futures.extend(made)
        return members

    sender = Sender(connected, request, expect, most_rows=1 if apart else MOST_ROWS, patient=patient)
    for item in inputs:
        sender.add(item)
    sender.flush()
    return futures
