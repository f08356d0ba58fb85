"""Messages with something wrong in them, made of real ones."""

import random
from collections.abc import Sequence

__all__ = ["mutated"]

Message = list[bytes]

KINDS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 32, 33, 34, 35, 36, 37, 38)  # CLOSE and STOP do what they say
HUGE = (
    b"\xdd\xff\xff\xff\xff",  # an array of four billion
    b"\xdf\x7f\xff\xff\xff" + b"\xa1a" * 64,  # a map of two billion
    b"\xc6\xff\xff\xff\xff" + b"x" * 64,  # four gigabytes
    b"\x91" * 70_000,  # an array in an array in an array …
    b"\xdc\xff\xff" + b"\xc0" * 65_535,
    b"\xa1x" * 600_000,
)


def mutated(rng: random.Random, message: Sequence[bytes], others: Sequence[Sequence[bytes]]) -> Message:
    """The message with one to three things done to it."""
    frames = list(message)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if frames:
            rng.choice(MUTATIONS)(rng, frames, others)
    return frames


def _flip(rng: random.Random, frames: Message, _others: Sequence[Sequence[bytes]]) -> None:
    at = rng.randrange(len(frames))
    octets = bytearray(frames[at])
    for _ in range(rng.randint(1, 4) if octets else 0):
        octets[rng.randrange(len(octets))] = rng.randrange(256)
    frames[at] = bytes(octets)


def _cut(rng: random.Random, frames: Message, _others: Sequence[Sequence[bytes]]) -> None:
    at = rng.randrange(len(frames))
    frames[at] = frames[at][: rng.randint(0, len(frames[at]))]


def _stretch(rng: random.Random, frames: Message, _others: Sequence[Sequence[bytes]]) -> None:
    frames[rng.randrange(len(frames))] += rng.randbytes(rng.choice((1, 8, 1000)))


def _drop(rng: random.Random, frames: Message, _others: Sequence[Sequence[bytes]]) -> None:
    frames.pop(rng.randrange(len(frames)))


def _double(rng: random.Random, frames: Message, _others: Sequence[Sequence[bytes]]) -> None:
    frames.insert(rng.randint(0, len(frames)), rng.choice(frames))


def _swap(rng: random.Random, frames: Message, _others: Sequence[Sequence[bytes]]) -> None:
    one, two = rng.randrange(len(frames)), rng.randrange(len(frames))
    frames[one], frames[two] = frames[two], frames[one]


def _borrow(rng: random.Random, frames: Message, others: Sequence[Sequence[bytes]]) -> None:
    """A frame of another message, in the same place if it has one."""
    other, at = rng.choice(others), rng.randrange(len(frames))
    frames[at] = other[min(at, len(other) - 1)]


def _huge(rng: random.Random, frames: Message, _others: Sequence[Sequence[bytes]]) -> None:
    frames[min(1, len(frames) - 1)] = rng.choice(HUGE)


def _other_instance(rng: random.Random, frames: Message, _others: Sequence[Sequence[bytes]]) -> None:
    frames[0] = frames[0][:6] + rng.choice((bytes(8), rng.randbytes(8))) + frames[0][14:]


def _other_kind(rng: random.Random, frames: Message, _others: Sequence[Sequence[bytes]]) -> None:
    frames[0] = frames[0][:5] + bytes((rng.choice(KINDS),)) + frames[0][6:]


MUTATIONS = (_flip, _flip, _flip, _cut, _stretch, _drop, _double, _swap, _borrow, _huge, _other_instance, _other_kind)
