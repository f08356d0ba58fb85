"""Bodies of jobs and answers.

A client writes a job's body once and a worker writes its answer's body once. The pool reads their heads and forwards
the bytes as they are, so it never encodes a tensor. A frame holds one or more bodies, each as long as its head says.

    client ── JOB bodies ──────────────► pool ── RUN, JOB bodies ──────────────► lane of a worker
    client ◄─ ANSWER, FAILURE bodies ─── pool ◄─ DONE, ANSWER, FAILURE bodies ── lane of a worker

    body = HEAD, spec, data                       small tensors follow the spec
         | HEAD, spec, PART    with flag SHARED   large ones lie in the client's shared memory
"""

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

import msgpack

from pool.wire.specs import MOST_SPEC_BYTES, BadMessage, unpack


class Kind(IntEnum):
    JOIN = 1  # the first message of a ZeroMQ socket; its data is the token that the link gave
    JOB = 2
    CANCEL = 3
    RUN = 4  # to a lane
    DONE = 5  # of a lane
    ANSWER = 6
    FAILURE = 7
    RELEASED = 8  # of a job that had ended early: its shared memory is free now
    CLOSE = 9  # the last message of a client's socket
    GONE = 10  # to a socket that the pool does not know: join again, from a new socket
    ASK = 11  # a rare question; its data is msgpack
    REPLY = 12


# Flags are plain integers: `&` of an IntFlag costs 3 µs.
SHARED = 1
RUNNING = 2  # of a FAILURE: a worker may still use the job's shared memory, until RELEASED
RESENT = 4  # of a JOB: a pool that is gone may have started it; the head's attempts say how often
BLOCK = 8  # of a JOB: rows of a larger call. A lane that may not join its rows answers "Stale"
JOINED = 1  # of a DONE: the jobs shared one run

HEAD = struct.Struct("<BBbBIIQff")
"""Kind, flags, priority, attempts, lengths of spec and data, job, seconds, more seconds.

Of a JOB: its priority; how many pools died with it; the seconds left. Of an ANSWER: how many jobs shared its run, 255
at the most, in the place of attempts; the seconds it was in the lane before its run, and those of the run.
"""

PART = struct.Struct("<QQQQQ")
"""Arena; offset and length of what was written; offset and length of the room for the answer."""

BATCH = struct.Struct("<BBHIQ")
"""Kind, flags, model as the worker counts them, number of bodies, batch.

The pool says which model runs, and so which version. The spec has only what the caller called it.
"""

TOKEN_BYTES = 16
INLINE_BYTES = 32 << 10  # what is larger goes through shared memory
LETTER_BYTES = 32 << 10  # of bodies that travel in one frame: joining more costs more than further frames
MOST_BODY_BYTES = 1 << 30  # of one frame; libzmq ends the connection of a peer that sends more
MOST_SECONDS = 1e6


class Body(NamedTuple):
    kind: int
    flags: int
    priority: int
    attempts: int
    spec: bytes
    begins: int  # of the data in its frame
    ends: int
    job: int
    seconds: float
    whole: bytes  # the body itself, to be forwarded


def bodies(frame: bytes, at: int = 0) -> Iterator[Body]:
    """The bodies of a frame from `at` on. Raises `BadMessage`."""
    end = len(frame)
    while at < end:
        if at + 28 > end:
            raise BadMessage(f"{end - at} bytes are less than a head")
        kind, flags, priority, attempts, spec_bytes, data_bytes, job, seconds, more = HEAD.unpack_from(frame, at)
        begins = at + 28 + spec_bytes
        ends = begins + (40 if flags & SHARED else data_bytes)
        if ends > end or spec_bytes > MOST_SPEC_BYTES:
            raise BadMessage(f"a body of {ends - at} bytes in {end - at}")
        if not 0.0 <= seconds <= MOST_SECONDS or not 0.0 <= more <= MOST_SECONDS:  # NaN is neither
            raise BadMessage("seconds that are no time")
        whole = frame if at == 0 and ends == end else frame[at:ends]
        yield Body(kind, flags, priority, attempts, frame[at + 28 : begins], begins, ends, job, seconds, whole)
        at = ends


def plain(kind: int, job: int = 0, data: bytes = b"", flags: int = 0, seconds: float = 0.0) -> bytes:
    """A body without a spec."""
    return HEAD.pack(kind, flags, 0, 0, 0, len(data), job, seconds, 0.0) + data


def pack(value: object) -> bytes:
    """As msgpack, whatever a text holds: lone surrogates of file names and error texts become escapes."""
    return bytes(msgpack.packb(value, unicode_errors="backslashreplace", default=str))


def failure(job: int, name: str, text: str, flags: int = 0) -> bytes:
    """`name`: of a class of `pool.errors`, or a word of the protocol: "Stale", "Stopping"."""
    return plain(Kind.FAILURE, job, pack((name, text[:8000])), flags)


def failure_of(data: bytes | memoryview) -> tuple[str, str]:
    """The name and the text. Raises `BadMessage`."""
    match unpack(data):
        case [str() as name, str() as text]:
            return name, text
    raise BadMessage("a failure without name and text")


def letters(waiting: list[bytes]) -> Iterator[bytes]:
    """Small bodies together, in order. A question travels alone, since its answer may cost the pool much."""
    first = size = 0
    for index, body in enumerate(waiting):
        size += len(body)
        if index > first and (size > LETTER_BYTES or Kind.ASK in (body[0], waiting[first][0])):
            yield b"".join(waiting[first:index])
            first, size = index, len(body)
    if waiting:
        yield b"".join(waiting[first:])
