"""Frames on their way through the pool, and what holding them costs."""

from collections.abc import Sequence

import zmq

from pool.router.arenas import LentBuffer

__all__ = ["Payload", "held_bytes"]

Payload = Sequence["bytes | zmq.Frame"]

FRAME_BYTES = 512  # libzmq's and Python's own for one frame, however empty: without it, empty frames would be free


def held_bytes(payload: "Sequence[bytes | zmq.Frame | LentBuffer]") -> int:
    """The memory that these take while they wait here."""
    return sum(map(len, payload)) + FRAME_BYTES * len(payload)
