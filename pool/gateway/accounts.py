"""What all processes of a gateway hold together, so that each bound holds for their sum.

    a row for each bound ──► a cell for each process, in a file in memory that all of them have mapped

A process writes to its own cells, and adds up all cells before it takes more. One that follows a dead one begins at 0.
"""

import mmap
import os
import time

from pool.wire.gateway import GatewaySettings

__all__ = ["Accounts", "Rate", "Sum"]

CELL_BYTES = 8
ROWS_OF_GATEWAY, ROWS_OF_CLIENT = 2, 3


class Sum:
    """A number of all processes: bytes, jobs or connections that are held at this moment."""

    __slots__ = ("_cells", "_own")

    def __init__(self, cells: memoryview | None = None, own: int = 0) -> None:
        """`cells`: int64, one for each process, of which number `own` is this one's. None: there is no other."""
        self._cells = memoryview(bytearray(CELL_BYTES)).cast("q") if cells is None else cells
        self._own = own
        self._cells[own] = 0

    def take(self, amount: int, most: int) -> bool:
        """False, and nothing is taken, where all would have more than `most`.

        Two processes that take the last at one time may both be refused, but never both have it.
        """
        self._cells[self._own] += amount
        if sum(self._cells) <= most:
            return True
        self._cells[self._own] -= amount
        return False

    def give(self, amount: int) -> None:
        self._cells[self._own] -= amount

    @property
    def own(self) -> int:
        """Of this process."""
        return self._cells[self._own]


class Rate:
    """Jobs a second, of all processes together. A second's worth may come at once, and at least one job."""

    __slots__ = ("_cell", "_each_ns", "_spare_ns")

    def __init__(self, per_second: float, cell: memoryview | None = None) -> None:
        """`cell`: one int64, by when all jobs so far are due, on the monotonic clock."""
        self._each_ns = int(1e9 / per_second)
        self._spare_ns = int(max(0.0, per_second - 1.0) * self._each_ns)
        self._cell = memoryview(bytearray(CELL_BYTES)).cast("q") if cell is None else cell

    def take(self) -> float:
        """0.0: a job may go. Else it may not, and in so many seconds one may.

        Without a lock, which a process that is frozen could hold. So two jobs of one microsecond may count as one.
        """
        now = time.monotonic_ns()
        due = max(self._cell[0], now)
        if due - now > self._spare_ns:
            return (due - now - self._spare_ns) / 1e9
        self._cell[0] = due + self._each_ns
        return 0.0


class Accounts:
    """Of one process. REQUIRES that the others have the same settings, but for their `number`."""

    def __init__(self, settings: GatewaySettings, shared_fd: int | None = None) -> None:
        """`shared_fd`: a file in memory that was empty when the first process began. None: there are no others."""
        self._settings = settings
        rows = ROWS_OF_GATEWAY + ROWS_OF_CLIENT * len(settings.clients)
        size_bytes = rows * settings.processes * CELL_BYTES
        if shared_fd is not None and os.fstat(shared_fd).st_size < size_bytes:
            os.ftruncate(shared_fd, size_bytes)
        self._cells = memoryview(mmap.mmap(-1 if shared_fd is None else shared_fd, size_bytes)).cast("q")
        self.connections = Sum(self._row(0), settings.number)
        self.bodies = Sum(self._row(1), settings.number)
        """Bytes of requests that are read or answered."""

    def of_client(self, name: str) -> tuple[Sum, Sum, Rate | None]:
        """Its open jobs, their bytes, and its rate if that is bound."""
        numbers = (number for number, rules in enumerate(self._settings.clients) if rules.name == name)
        number = next(numbers, None)
        if number is None:  # nothing of it is bound
            return Sum(), Sum(), None
        row, per_second = ROWS_OF_GATEWAY + ROWS_OF_CLIENT * number, self._settings.clients[number].rate
        own = self._settings.number
        rate = None if per_second is None else Rate(per_second, self._row(row + 2))
        return Sum(self._row(row), own), Sum(self._row(row + 1), own), rate

    def _row(self, row: int) -> memoryview:
        count = self._settings.processes
        return self._cells[row * count : (row + 1) * count]
