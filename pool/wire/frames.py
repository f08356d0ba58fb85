"""A message as the frames of one ZeroMQ multipart message. Each begins with the same 14 bytes:

    preamble  "TFWP" · u8 version · u8 kind · instance×8

The instance is the id of one start of the pool, so that nothing meant for an earlier one is taken for this one's;
it is all zeros until a peer has been told. No payload buffer is read here.

    the messages of a job   preamble and fixed fields in the first frame, see `pool.wire.hot`
    all others              the preamble · msgpack of the fields · payload, any number of frames

The first six bytes and REFUSAL are the same in every version, see `pool.wire.refusal`.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pool.wire.batches import Done, Run
from pool.wire.codec import MAX_HEADER_BYTES, BadFrame, pack, unpack
from pool.wire.hot import MAGIC, VERSION, Buffer
from pool.wire.jobs import Results, Submit
from pool.wire.message import Message

__all__ = [
    "MAGIC",
    "NO_INSTANCE",
    "VERSION",
    "BadFrame",
    "Envelope",
    "OtherVersion",
    "check_version",
    "decode",
    "encode",
]

START = MAGIC + bytes((VERSION,))
NO_INSTANCE = bytes(8)
PREAMBLE_BYTES = 14

_HOT = frozenset((Submit, Results, Run, Done))


class OtherVersion(BadFrame):
    """The peer speaks another version of the protocol. `kind` is that of its message."""

    def __init__(self, version: int, kind: int) -> None:
        versions = f"protocol version {version} from the other side, {VERSION} here"
        super().__init__(
            f"{versions}: install the same release on both sides, and restart a pool that was started before"
        )
        self.version = version
        self.kind = kind


@dataclass(slots=True)
class Envelope:
    """A decoded message. `payload` holds the buffers as they came, not copied."""

    instance: bytes
    message: Any
    payload: list[Buffer]


def encode(message: Message, instance: bytes, payload: Sequence[Buffer] = ()) -> list[Buffer]:
    """All frames of it. Large buffers of the payload are among them as they are."""
    if type(message) in _HOT:
        return message.to_frames(instance, payload)  # type: ignore[attr-defined,no-any-return]
    return [MAGIC + bytes((VERSION, message.kind)) + instance, pack(message), *payload]


def check_version(preamble: bytes | memoryview) -> None:
    """Reads what is the same in every version. Raises `BadFrame`, or its `OtherVersion`."""
    if len(preamble) < 6 or preamble[:4] != MAGIC:
        raise BadFrame("not a frame of this protocol")
    if preamble[4] != VERSION:
        raise OtherVersion(preamble[4], preamble[5])


def decode(
    kinds: Mapping[int, type[Message]], frames: Sequence[Buffer], most_header_bytes: int = MAX_HEADER_BYTES
) -> Envelope:
    """The message in frames that anybody may have sent. Raises `BadFrame` (or its `OtherVersion`) and nothing else.

    `kinds`: `CLIENT_MESSAGES` or `WORKER_MESSAGES`, whichever this socket speaks. `most_header_bytes`: of msgpack.
    """
    if not frames:
        raise BadFrame("0 frames")
    first = memoryview(frames[0])
    if len(first) < PREAMBLE_BYTES or first[:5] != START:
        check_version(first)
        raise BadFrame(f"a preamble of {len(first)} bytes")
    if first[5] not in kinds:
        raise BadFrame(f"no message kind {first[5]}")
    kind = kinds[first[5]]
    instance = bytes(first[6:14])
    if kind in _HOT:
        try:
            return Envelope(instance, *kind.read(first, frames))  # type: ignore[attr-defined]
        except struct.error as error:
            raise BadFrame(f"{kind.__name__}: {error}") from None
    if len(first) != PREAMBLE_BYTES:
        raise BadFrame(f"a preamble of {len(first)} bytes")
    if len(frames) < 2:
        raise BadFrame(f"{len(frames)} frames")
    return Envelope(instance, unpack(kind, memoryview(frames[1]), most_header_bytes), list(frames[2:]))
