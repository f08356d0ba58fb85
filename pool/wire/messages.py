"""Bodies of jobs and answers.

A client writes a job's body once and a worker writes its answer's body once. The pool reads their heads and forwards
the bytes as they are, so it never encodes a tensor. A frame holds one or more bodies, each as long as its head says.

    client ── job body ───► pool ── RUN, job bodies ─────► lane of a worker
    client ◄─ answer body ─ pool ◄─ DONE, answer bodies ── lane of a worker

    body  = HEAD, spec, data                       small tensors follow the spec
          | HEAD, spec, PART    with flag SHARED   large ones lie in the client's shared memory

The spec names the model, the signature and each tensor (name, dtype, shape). Equal specs are equal bytes, so every
process looks them up in a dict and parses each of them once.
"""

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

__all__ = ["BATCH", "HEAD", "PART", "RUNNING", "SHARED", "BadMessage", "Body", "Kind", "bodies", "failure"]


class Kind(IntEnum):
    JOIN = 1  # the first message of a socket; its data is the token that the link gave
    JOB = 2
    CANCEL = 3
    RUN = 4
    DONE = 5
    ANSWER = 6
    FAILURE = 7
    RELEASED = 8  # of a job that had ended early: its shared memory is free now


SHARED = 1  # flags are plain integers: `&` of an IntFlag costs 3 µs
RUNNING = 2  # of a FAILURE: a worker still reads the job's shared memory, until RELEASED


class BadMessage(Exception):
    """Bytes that no correct peer sends."""


HEAD = struct.Struct("<BBxxIIQff")
"""Kind, flags, lengths of spec and data, job; a job's seconds left, or an answer's seconds in the lane and run."""

PART = struct.Struct("<QQQQQ")
"""Arena; offset and length of what was written; offset and length of the room for the answer."""

BATCH = struct.Struct("<BxxxIQ")
"""Kind, number of bodies, batch."""


class Body(NamedTuple):
    kind: int
    flags: int
    spec: bytes
    begins: int  # of the data in its frame
    ends: int
    job: int
    seconds: float
    more_seconds: float
    whole: bytes  # the body itself, to be forwarded


def bodies(frame: bytes, at: int = 0) -> Iterator[Body]:
    """The bodies of a frame from `at` on. Raises `BadMessage`."""
    end = len(frame)
    while at < end:
        if at + HEAD.size > end:
            raise BadMessage(f"{end - at} bytes are less than a head")
        kind, flags, spec_length, data_length, job, seconds, more_seconds = HEAD.unpack_from(frame, at)
        begins = at + HEAD.size + spec_length
        ends = begins + (PART.size if flags & SHARED else data_length)
        if ends > end:
            raise BadMessage(f"a body of {ends - at} bytes in {end - at}")
        whole = frame if at == 0 and ends == end else frame[at:ends]
        yield Body(kind, flags, frame[at + HEAD.size : begins], begins, ends, job, seconds, more_seconds, whole)
        at = ends


def failure(job: int, text: str, flags: int = 0) -> bytes:
    data = text.encode("utf-8", "backslashreplace")
    return HEAD.pack(Kind.FAILURE, flags, 0, len(data), job, 0.0, 0.0) + data
