"""Frames on their way through the pool, and what holding them costs."""

from collections.abc import Sequence

import zmq

__all__ = ["FRAME_BYTES", "VIEW_BYTES", "Payload", "held_bytes"]

Payload = Sequence["bytes | memoryview | zmq.Frame"]

FRAME_BYTES = 512  # libzmq's and Python's own for one frame, however empty: without it, empty frames would be free
VIEW_BYTES = 200  # Python's own for a look at some bytes of a frame: a buffer in the first one, which counts by itself


def held_bytes(payload: Payload) -> int:
    """The memory that these take while they wait here."""
    return sum(map(len, payload)) + FRAME_BYTES * len(payload)
