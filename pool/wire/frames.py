"""A message as the frames of one ZeroMQ multipart message.

    ┌──────────────────────────────────────┬───────────────────────┬─────────────────────────────┐
    │ preamble, 14 bytes                   │ header                │ payload, any number         │
    │ "TFWP" · version · kind · instance×8 │ msgpack of the fields │ opaque here; tensors, tables│
    └──────────────────────────────────────┴───────────────────────┴─────────────────────────────┘

The instance is the id of one start of the pool, so that nothing meant for an earlier one is taken for this one's;
it is all zeros until a peer has been told. No tensor byte is inside msgpack, and no payload frame is read here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from pool.wire.codec import MAX_HEADER_BYTES, BadFrame, pack, unpack
from pool.wire.message import Message

__all__ = ["NO_INSTANCE", "VERSION", "BadFrame", "Envelope", "OtherVersion", "decode", "encode"]

MAGIC = b"TFWP"
VERSION = 7
NO_INSTANCE = bytes(8)

Frame = TypeVar("Frame")


class OtherVersion(BadFrame):
    """The peer speaks another version of the protocol."""

    def __init__(self, version: int) -> None:
        super().__init__(
            f"protocol version {version} from the other side, {VERSION} here: install the same release on both"
        )
        self.version = version


@dataclass(frozen=True, slots=True)
class Envelope(Generic[Frame]):
    """A decoded message. `payload` holds the frames as they came, not copied."""

    instance: bytes
    message: Message
    payload: Sequence[Frame]


def encode(message: Message, instance: bytes) -> list[bytes]:
    """The two leading frames; the caller appends the payload."""
    return [MAGIC + bytes((VERSION, message.kind)) + instance, pack(message)]


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
    if len(preamble) != 14 or preamble[:4] != MAGIC:
        raise BadFrame("not a frame of this protocol")
    if preamble[4] != VERSION:
        raise OtherVersion(preamble[4])
    kind = kinds.get(preamble[5])
    if kind is None:
        raise BadFrame(f"no message kind {preamble[5]}")
    return Envelope(bytes(preamble[6:14]), unpack(kind, header, most_header_bytes), payload)
