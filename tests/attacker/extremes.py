"""The values at which numbers, texts and sizes end, and a little of what lies between."""

import random
import struct
from collections.abc import Sequence
from typing import Any, TypeVar

__all__ = [
    "CONTROL",
    "LAST",
    "LONG",
    "NOT_TIMEOUTS",
    "UTF_8",
    "WRONG_TYPES",
    "bits",
    "name",
    "number",
    "one_of",
    "outside",
]

LAST = (1 << 63) - 1  # of the numbers of jobs
LONG = 1001  # characters: one more than a name may have
NUMBERS = (
    *(-(1 << 63), -(1 << 31), -1, 0, 1, 127, 128, 255, 256, 65_535, 65_536),
    *((1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, LAST - 1, LAST, 1 << 63, (1 << 64) - 2, (1 << 64) - 1),
)
NOT_TIMEOUTS = (float("nan"), float("inf"), float("-inf"), -1.0, -5e-324, -1e308)
CONTROL = (
    *("\0", "\n", "\r\n\r\n", "\x1b[2J\x1b]0;pwned\a", "\x7f", "\u2028", "\u202e", "\ufeff", "\U0010ffff"),
    *("{0.__class__}", "%s%n", "../../etc/passwd", "$(reboot)", "' OR 1=1 --", "slot:0\0", "@", "rows@1", "𝄞" * 200),
)
# What is no text in UTF-8: a lone surrogate, an overlong NUL, one byte too few, a byte that is none, beyond the last.
UTF_8 = (b"\xed\xb3\xbf", b"\xc0\x80", b"\xe2\x82", b"\xff", b"\xf4\x90\x80\x80")
# What no field of any message takes, as msgpack has it: extensions, maps, an instant, a code that is never used.
WRONG_TYPES = (b"\xd4\x01x", b"\xc7\x00\x05", b"\x81\xa1a\x01", b"\x81\x01\x02", b"\xd6\xff\0\0\0\0", b"\xc1")

T = TypeVar("T")


def one_of(rng: random.Random, values: Sequence[T]) -> T:
    return values[rng.randrange(len(values))]


def number(rng: random.Random) -> int:
    return one_of(rng, NUMBERS) if rng.random() < 0.7 else rng.randrange(-(1 << 63), 1 << 64)


def outside(rng: random.Random, low: int, high: int) -> int:
    """A number that can travel, and is not from `low` to `high`."""
    beyond = [
        each for each in (*NUMBERS, low - 1, high + 1) if not low <= each <= high and -(1 << 63) <= each < 1 << 64
    ]
    return one_of(rng, beyond)


def name(rng: random.Random) -> str:
    """A text that can travel, and that nothing has for its name."""
    kind = rng.randrange(4)
    if kind == 0:
        return one_of(rng, CONTROL)
    if kind == 1:
        return f"none {rng.randrange(1000)}"
    if kind == 2:
        return "".join(chr(rng.choice((rng.randrange(1, 0xD800), rng.randrange(0xE000, 0x110000)))) for _ in range(40))
    return rng.choice("x𝄞\0") * (LONG - 1)


def bits(rng: random.Random, size_bytes: int) -> bytes:
    """Any; among them what floats have beyond numbers."""
    some = bytearray(rng.randbytes(size_bytes))
    for value in (float("nan"), float("inf"), -0.0, 1e-45):
        if size_bytes >= 4:
            struct.pack_into("<f", some, rng.randrange(size_bytes // 4) * 4, value)
    return bytes(some)


def unlike(rng: random.Random, *allowed: type) -> Any:
    """A value of msgpack's that is of none of these types."""
    values: Sequence[Any] = (
        None,
        True,
        0,
        1.5,
        float("nan"),
        "",
        b"",
        (),
        (1, (2, (3,))),
        {},
        {"a": 1},
        -(1 << 63),
        (1 << 64) - 1,
    )
    return one_of(rng, [value for value in values if type(value) not in allowed])
