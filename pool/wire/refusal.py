"""What never changes in this protocol, so that peers of different releases can tell that they are.

    ┌─────────────────────────┬──────────────────┐
    │ "TFWP" · version · kind │ is the version's │     the first six bytes of every message
    └─────────────────────────┴──────────────────┘
    ┌──────────────────────────────────┬─────────────────────────────┐
    │ "TFWP" · version · 0 · instance×8│ msgpack: an array of a text │     REFUSAL, two frames
    └──────────────────────────────────┴─────────────────────────────┘

The version is the sender's. A peer's first message has at most two frames: a client's is OPEN, kind 1, a worker's is
HELLO, kind 32. The pool answers one of another version with REFUSAL.
"""

from dataclasses import dataclass
from typing import ClassVar

__all__ = ["Refusal"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """The peer's message was not understood, or was meant for an older instance of the pool."""

    kind: ClassVar[int] = 0
    text: str
