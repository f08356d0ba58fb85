"""What the messages of a job have in common: SUBMIT, RUN, DONE and RESULT.

    ┌─ first frame ──────────────────────────────────────────┬─ others ──────┐
    │ preamble │ fixed    │ counted  │ sizes  │ small        │ a frame each: │
    │          │ fields   │ sections │ of all │ buffers, one │ large buffers │
    │ 14 bytes │ `struct` │ in order │ u32 ×  │ behind       │ (a string's   │
    │          │          │          │        │ the other    │ may be two)   │
    └──────────┴──────────┴──────────┴────────┴──────────────┴───────────────┘

All numbers are little-endian. The fixed fields say how many elements each section has, so the length of the first
frame follows from them: a message that is longer or shorter is a `BadFrame`, and so is one of another number of frames.
Each buffer has a size of u32: so many bytes in this frame, or one of the marks below. A lone tiny job is one frame.

    SUBMIT  u16 flags · u64 job · u64 origin (0: none) · f64 timeout · u32 call
            u32 rows (0: none) · u32 bytes of names · u32 bytes of table
            u32 tensors · u16 attempts · u16 weight · u16 lent · i8 priority
            pad 1
            sections: lent × (u32 segment · pad 4 · u64 offset · u64 bytes)
                      space the same, if flagged · sizes · names (msgpack)
                      table
            flags: 1 in doubt · 2 has space for the answer
                   4 registers the call
    RESULT  u16 flags (0) · u32 results · u32 buffers · u32 waiting
            sections: results × (u64 job · u64 id · f64 queue · f64 batch wait
                      f64 feed · f64 run · f64 fetch
                      u64 version (all ones: none) · u32 rows
                      u32 batch rows · u32 slot · u32 attempts · u32 pieces
                      u16 bytes of device · u8 released · u8 chunks)
                      pieces × u32 buffers · sizes · devices
    RUN     u16 flags · u64 batch · u64 owner · u32 call · u32 bytes of names
            u32 bytes of table · u32 parts · u32 rows to be fed
            u32 microbatch · u32 spaces · u32 lent · u32 buffers
            sections: lent × as in SUBMIT · spaces the same
                      parts × u32 rows (none: a lone part without) · sizes
                      names (msgpack) · table
            flags: 1 by rows · 2 registers the lane's call
    DONE    u16 flags (0) · u64 batch · f64 run · f64 fetch · u32 parts
            u32 buffers · u32 bytes of failures
            sections: parts × u32 buffers (0: it failed) · sizes
                      failures (msgpack)
"""

import struct
from collections.abc import Collection, Sequence
from typing import Any

from pool.wire.codec import BadFrame

__all__ = [
    "IN_SHARED_MEMORY",
    "MAGIC",
    "OWN_FRAME",
    "PLACE",
    "SMALL_BYTES",
    "TWO_FRAMES",
    "VERSION",
    "Buffer",
    "bounded",
    "found_buffers",
    "pack_numbers",
    "split",
]

MAGIC = b"TFWP"
VERSION = 14

# Of a buffer that shares the header's frame. Measured, of the processor time that a message takes each way with a frame
# more: 0.90 at 1 to 4 KiB, 0.91 at 8 KiB, 0.94 at 16 KiB, 0.97 at 32 KiB, 1.1 at 64 KiB.
SMALL_BYTES = 8 << 10
OWN_FRAME = 0xFFFFFFFF
TWO_FRAMES = 0xFFFFFFFE
IN_SHARED_MEMORY = 0xFFFFFFFD

PLACE = struct.Struct("<I4xQQ")
"""Segment, offset and bytes."""

Buffer = Any
"""`bytes`, a `memoryview`, or a `zmq.Frame`: all have a length and are buffers to Python."""


def split(
    buffers: Sequence[Buffer], lent: Collection[int] = (), halves: Collection[int] = ()
) -> tuple[Sequence[int], Sequence[Buffer], Sequence[Buffer]]:
    """The sizes of the buffers, those that share the first frame, and those that have frames of their own.

    `halves`: the numbers of those that come as two, one after the other.
    """
    sizes = [*map(len, buffers)]
    if not lent and not halves and max(sizes, default=0) <= SMALL_BYTES:  # as nearly all are
        return sizes, buffers, ()
    sizes = []
    small: list[Buffer] = []
    own: list[Buffer] = []
    rest = iter(buffers)
    for buffer in rest:
        size = len(buffer)
        if len(sizes) in lent:
            sizes.append(IN_SHARED_MEMORY)
        elif len(sizes) in halves:
            sizes.append(TWO_FRAMES)
            own += (buffer, next(rest))
        elif size > SMALL_BYTES:
            sizes.append(OWN_FRAME)
            own.append(buffer)
        else:
            sizes.append(size)
            small.append(buffer)
    return sizes, small, own


def pack_numbers(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}I", *values)


def bounded(first: memoryview, position: int, size_bytes: int) -> int:
    """Where a section of so many bytes ends. Raises `BadFrame` where that is beyond the frame."""
    end = position + size_bytes
    if end > len(first):
        raise BadFrame(f"{size_bytes} bytes at {position} of a frame of {len(first)} bytes")
    return end


def found_buffers(
    frames: Sequence[Buffer], first: memoryview, position: int, sizes: Sequence[int]
) -> tuple[list[Buffer], Sequence[int], Sequence[int]]:
    """The buffers, and which of them are lent (these are empty), and which come in two frames.

    Raises `BadFrame` where the frames are not those that the sizes tell of, to the last byte.
    """
    found: list[Buffer] = []
    lent: list[int] = []
    halves: list[int] = []
    own = 1
    for index, size in enumerate(sizes):
        if size < IN_SHARED_MEMORY:  # as nearly all are; what the end of the frame cuts short is noticed there
            found += (first[position : position + size],)
            position += size
        elif size == IN_SHARED_MEMORY:
            lent.append(index)
            found += (b"",)
        else:
            count = 1 if size == OWN_FRAME else 2
            if size == TWO_FRAMES:
                halves.append(index)
            found += frames[own : own + count]
            own += count
    if position != len(first):
        raise BadFrame(f"a first frame of {len(first)} bytes, of which {position} are declared")
    if own != len(frames):
        raise BadFrame(f"{len(frames)} frames, where {own} are declared")
    return found, lent, halves
