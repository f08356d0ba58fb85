"""A message as the frames of one ZeroMQ multipart message.

    ┌──────────────────────────────────────┬───────────────────────┬─────────────────────────────┐
    │ preamble, 14 bytes                   │ header                │ payload, any number         │
    │ "TFWP" · version · kind · instance×8 │ msgpack of the fields │ opaque here; tensors, tables│
    └──────────────────────────────────────┴───────────────────────┴─────────────────────────────┘

The instance is the id of one start of the pool, so that nothing meant for an earlier one is taken for this one's;
it is all zeros until a peer has been told. No tensor byte is inside msgpack, and no payload frame is read here.
The first six bytes and REFUSAL are the same in every version, see `pool.wire.refusal`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from pool.wire.codec import MAX_HEADER_BYTES, BadFrame, pack, unpack
from pool.wire.message import Message

__all__ = ["NO_INSTANCE", "VERSION", "BadFrame", "Envelope", "OtherVersion", "check_version", "decode", "encode"]

MAGIC = b"TFWP"
VERSION = 7
START = MAGIC + bytes((VERSION,))
NO_INSTANCE = bytes(8)

Frame = TypeVar("Frame")


class OtherVersion(BadFrame):
    """The peer speaks another version of the protocol. `kind` is that of its message."""

    def __init__(self, version: int, kind: int) -> None:
        versions = f"protocol version {version} from the other side, {VERSION} here"
        super().__init__(f"{versions}: install the same release on both, and restart a pool that was started before")
        self.version = version
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Envelope(Generic[Frame]):
    """A decoded message. `payload` holds the frames as they came, not copied."""

    instance: bytes
    message: Message
    payload: Sequence[Frame]


def encode(message: Message, instance: bytes) -> list[bytes]:
    """The two leading frames; the caller appends the payload."""
    return [MAGIC + bytes((VERSION, message.kind)) + instance, pack(message)]


def check_version(preamble: bytes | memoryview) -> None:
    """Reads what is the same in every version. Raises `BadFrame`, or its `OtherVersion`."""
    if len(preamble) < 6 or preamble[:4] != MAGIC:
        raise BadFrame("not a frame of this protocol")
    if preamble[4] != VERSION:
        raise OtherVersion(preamble[4], preamble[5])


def decode(
    kinds: Mapping[int, type[Message]],
    preamble: bytes | memoryview,
    header: bytes | memoryview,
    payload: Sequence[Frame],
    most_header_bytes: int = MAX_HEADER_BYTES,
) -> Envelope[Frame]:
    """The message in frames that anybody may have sent. Raises `BadFrame` (or its `OtherVersion`) and nothing else.

    `kinds`: `CLIENT_MESSAGES` or `WORKER_MESSAGES`, whichever this socket speaks.
    """
    if len(preamble) != 14 or preamble[:5] != START:
        check_version(preamble)
        raise BadFrame(f"a preamble of {len(preamble)} bytes")
    kind = kinds.get(preamble[5])
    if kind is None:
        raise BadFrame(f"no message kind {preamble[5]}")
    return Envelope(bytes(preamble[6:14]), unpack(kind, header, most_header_bytes), payload)
