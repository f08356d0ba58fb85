"""What all processes of a gateway hold together, so that each bound holds for their sum.

    a row for each bound ──► a cell for each process, in a file in memory that all of them have mapped

A process writes to its own cells, and adds up all cells before it takes more. One that follows a dead one begins at 0.
"""

import mmap
import os

from pool.wire.gateway import GatewaySettings

__all__ = ["Accounts", "Sum"]

CELL_BYTES = 8
ROWS_OF_GATEWAY = 2  # before one of each token's name


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

    @property
    def all(self) -> int:
        return sum(self._cells)


class Accounts:
    """Of one process. REQUIRES that the others have the same settings, but for their `number`."""

    def __init__(self, settings: GatewaySettings, shared_fd: int | None = None) -> None:
        """`shared_fd`: a file in memory that was empty when the first process began. None: there are no others."""
        self._settings = settings
        self._names = list(dict.fromkeys(token.name for token in settings.tokens or ()))
        rows = ROWS_OF_GATEWAY + len(self._names)
        size_bytes = rows * settings.processes * CELL_BYTES
        if shared_fd is not None and os.fstat(shared_fd).st_size < size_bytes:
            os.ftruncate(shared_fd, size_bytes)
        self._cells = memoryview(mmap.mmap(-1 if shared_fd is None else shared_fd, size_bytes)).cast("q")
        self.connections = Sum(self._row(0), settings.number)
        self.bodies = Sum(self._row(1), settings.number)
        """Bytes of requests that are read or answered."""

    def bodies_of(self, name: str) -> Sum:
        """Of them, those of who shows a token of this name. REQUIRES that there is one."""
        return Sum(self._row(ROWS_OF_GATEWAY + self._names.index(name)), self._settings.number)

    def _row(self, row: int) -> memoryview:
        count = self._settings.processes
        return self._cells[row * count : (row + 1) * count]
