"""Frames on their way through the pool, and what holding them costs."""

from collections.abc import Sequence

import zmq

__all__ = ["Payload", "held_bytes"]

Payload = Sequence["bytes | zmq.Frame"]

FRAME_BYTES = 512  # libzmq's and Python's own for one frame, however empty: without it, empty frames would be free


def held_bytes(payload: Payload) -> int:
    """The memory that these frames take while they wait here."""
    return sum(map(len, payload)) + FRAME_BYTES * len(payload)
