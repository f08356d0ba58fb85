"""Frames on their way through the pool, and what holding them costs."""

from collections.abc import Sequence

import zmq

__all__ = ["FRAME_BYTES", "VIEW_BYTES", "Payload", "held_bytes", "owned"]

Payload = Sequence["bytes | memoryview | zmq.Frame"]

FRAME_BYTES = 512  # libzmq's and Python's own for one frame, however empty: without it, empty frames would be free
VIEW_BYTES = 200  # Python's own for a look at some bytes of a frame: a buffer in the first one, which counts by itself


def held_bytes(payload: Payload) -> int:
    """The memory that these take while they wait here."""
    return sum(map(len, payload)) + FRAME_BYTES * len(payload)


def owned(payload: object) -> Payload:
    """A part's answer without the frame that others have their small ones in, too. Large ones are not copied."""
    buffers: Payload = payload  # type: ignore[assignment]  # as `Back` gave it to the core
    return [bytes(buffer) if type(buffer) is memoryview else buffer for buffer in buffers]
