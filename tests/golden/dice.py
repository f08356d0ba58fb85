"""Chance that is the same for ever: of `random`, Python promises the sequence of `random()` alone."""

import random
from collections.abc import Sequence
from typing import TypeVar

__all__ = ["Dice"]

T = TypeVar("T")


class Dice:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random

    def number(self, first: int, last: int) -> int:
        return first + int(self._random() * (last - first + 1))

    def chance(self, share: float) -> bool:
        return self._random() < share

    def pick(self, among: Sequence[T]) -> T:
        return among[self.number(0, len(among) - 1)]

    def some(self, among: Sequence[T], count: int) -> tuple[T, ...]:
        """So many of them, each once, in their order."""
        left = list(range(len(among)))
        while len(left) > count:
            left.pop(self.number(0, len(left) - 1))
        return tuple(among[index] for index in left)
