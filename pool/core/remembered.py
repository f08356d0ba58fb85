"""What outlives the jobs it was learned from: bounded in number, and in the bytes of names that clients chose."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, TypeVar

__all__ = ["MOST_NAME_BYTES", "Remembered", "names_bytes"]

MOST_NAME_BYTES = 1 << 20  # of each that keeps some: thousands of usual names, or fifteen of the longest
TEXT_BYTES = 60  # Python's own for a text and its place in a tuple

V = TypeVar("V")
Name = tuple[str | None, tuple[str, ...] | None, bytes]


def names_bytes(signature: str | None, outputs: tuple[str, ...] | None, form: bytes = b"") -> int:
    """About the memory that these take. Nobody pays for them once their job is answered."""
    size_bytes = len(signature or "") + len(form) + 2 * TEXT_BYTES
    return size_bytes + sum(map(len, outputs)) + TEXT_BYTES * len(outputs) if outputs else size_bytes


class Remembered(Generic[V]):
    """By name; what was put in longest ago is forgotten first."""

    __slots__ = ("_kept", "_most", "size_bytes")

    def __init__(self, most: int) -> None:
        self.size_bytes = 0
        self._most = most
        self._kept: OrderedDict[Name, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, name: Name) -> V | None:
        return self._kept.get(name)

    def items(self) -> Iterator[tuple[Name, V]]:
        return iter(self._kept.items())

    def put(self, name: Name, value: V) -> None:
        """The newest from now on, whether or not it was there."""
        kept = self._kept
        if name in kept:
            kept[name] = value
            kept.move_to_end(name)
            return
        kept[name] = value
        self.size_bytes += names_bytes(*name)
        while len(kept) > self._most or (self.size_bytes > MOST_NAME_BYTES and len(kept) > 1):
            forgotten, _ = kept.popitem(last=False)
            self.size_bytes -= names_bytes(*forgotten)

    def clear(self) -> None:
        self._kept.clear()
        self.size_bytes = 0
