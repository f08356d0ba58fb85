"""Which calls a lane knows by a number, so that a RUN says what it is once, and the number from then on."""

from collections import OrderedDict
from typing import TypeAlias

from pool.wire.calls import MOST_CALLS

__all__ = ["UNKEPT", "LaneCalls"]

UNKEPT = 0  # the number of whatever is too large to be kept: it is said each time
KEPT_BYTES = 4096  # of a table that is worth keeping: clients choose them …
KEPT_OUTPUTS = 64

Key: TypeAlias = tuple[str, str | None, tuple[str, ...] | None, bytes]  # model, signature, outputs, table


class LaneCalls:
    """Of one lane of one incarnation."""

    def __init__(self) -> None:
        self._numbers: OrderedDict[Key, int] = OrderedDict()  # what was used last is the last
        self._latest: tuple[Key | None, int] = None, UNKEPT
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._numbers)

    def number(self, key: Key) -> tuple[int, bool]:
        """Of a call that is sent now, and whether the lane is to hear what it is.

        Where there is no other number, that of the one which was used least recently is taken.
        """
        latest, number = self._latest
        if key == latest:
            return number, False
        if key in self._numbers:
            self._numbers.move_to_end(key)
            self._latest = key, self._numbers[key]
            return self._latest[1], False
        if len(key[3]) + sum(map(len, key[2] or ())) > KEPT_BYTES or len(key[2] or ()) > KEPT_OUTPUTS:
            return UNKEPT, True
        if self._free:
            number = self._free.pop()
        elif len(self._numbers) + 1 < MOST_CALLS:
            number = len(self._numbers) + 1
        else:
            _, number = self._numbers.popitem(last=False)
        self._numbers[key] = number
        self._latest = key, number
        return number, True

    def unsent(self, key: Key) -> None:
        """The lane has not heard of it after all."""
        self._latest = None, UNKEPT
        number = self._numbers.pop(key, None)
        if number is not None:
            self._free.append(number)
