"""Sizes, for the proof of rows: whole numbers, of which some depend on N, the number of rows.

N, and each size that is not known, stands as a large prime of its own: so products are equal or divisible only if they
are for all values.
"""

import itertools
from collections.abc import Iterable
from functools import reduce

_BITS = 61
MOST_ENTRIES = 64  # of a tensor that holds sizes
ROWS = 2**_BITS - 1  # N
ODD = ROWS**2  # depends on N, and is no product: whatever has this factor
_primes = (number for number in itertools.count(2**_BITS + 1, 2) if pow(2, number - 1, number) == 1)


def fresh() -> int:
    """A size that is not known, but one number in all jobs."""
    return int(next(_primes))


def has_rows(size: int) -> bool:
    return size != 0 and size % ROWS == 0


def is_known(*sizes: int) -> bool:
    return all(abs(size) < 2**31 for size in sizes)


def no_product(*sizes: int) -> int:
    return ODD if any(map(has_rows, sizes)) else fresh()


def times(one: int, other: int) -> int:
    """Not beyond what sizes of 32 bits can hold, or they might wrap."""
    size = one * other
    known = one.bit_length() % _BITS + other.bit_length() % _BITS
    return no_product(one, other) if size and (known > 31 or size.bit_length() > 12 * _BITS) else size


def plus(one: int, other: int) -> int:
    return one + other if 0 in (one, other) or is_known(one, other, one + other) else no_product(one, other)


def over(one: int, other: int) -> int:
    is_whole = other != 0 and one % other == 0 and one % ODD != 0
    return one // other if other != 0 and (is_whole or is_known(one, other)) else no_product(one, other)


def counted(size: int) -> int:
    """What is asked for, unless it may be -1, which stands for the rest."""
    return size if size >= 0 and is_known(size) else no_product(size)


def product(sizes: Iterable[int]) -> int:
    return reduce(times, sizes, 1)
