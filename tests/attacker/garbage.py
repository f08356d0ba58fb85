"""Messages that are none: each is answered with one REFUSAL, and changes nothing."""

import random
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgpack

from attacker.extremes import NOT_TIMEOUTS, UTF_8, WRONG_TYPES, one_of, unlike
from attacker.jobs import doubled
from pool.wire import client_messages as wire
from pool.wire import worker_messages
from pool.wire.client_messages import CLIENT_MESSAGES
from pool.wire.codec import pack
from pool.wire.frames import MAGIC, VERSION, encode
from pool.wire.message import Message
from pool.wire.worker_messages import WORKER_MESSAGES
from support.asked import Asked, framed

__all__ = ["garbage"]

MOST_HEADER_BYTES = 64 << 10
MOST_FRAMES = 4096
# Where a SUBMIT has them: written down here once more, so that the pool's own layout is not its judge.
FLAGS, TIMEOUT, NAMES, WEIGHT, LENT = 14, 32, 48, 62, 64

# What each field takes, as msgpack has it: written down here once more, so that the pool's own schema is not its judge.
TAKES: Mapping[type[Message], Sequence[tuple[type, ...]]] = {
    wire.Open: ((str,),),
    wire.Cancel: ((int,), (bool,)),
    wire.Forget: ((int,),),
    wire.Ask: ((int,), (str,), (str,)),
}
GOOD: Mapping[type, object] = {int: 7, str: "none", bool: False}
POOLS = (wire.Opened, wire.Results, wire.Failure, wire.Unpack, wire.Pong, wire.Refusal)
NOT_CLIENTS = (*(message.kind for message in POOLS), 12, 13, 15)


def garbage(rng: random.Random, instance: bytes) -> list[bytes]:
    """Frames that no version of a client sends to this instance."""
    return one_of(rng, KINDS)(rng, instance)


def good(rng: random.Random, instance: bytes) -> list[bytes]:
    """A message as it should be."""
    job = doubled(rng, rng.randrange(1 << 40))
    messages: tuple[Asked | Message, ...] = (wire.Cancel(1), wire.Ask(1, "status", ""), wire.Ping(), job.submit)
    message = one_of(rng, messages)
    return framed(message, instance, job.payload if message is job.submit else ())


def _preamble(rng: random.Random, instance: bytes) -> list[bytes]:
    preamble, *rest = good(rng, instance)
    octets = bytearray(preamble)
    how = rng.randrange(6)
    if how == 0:
        octets[rng.randrange(4)] ^= 1 << rng.randrange(8)
    elif how == 1:
        octets[4] = one_of(rng, (0, 1, VERSION - 1, VERSION + 1, 127, 255))
    elif how == 2:
        octets[5] = one_of(rng, [kind for kind in range(256) if kind not in CLIENT_MESSAGES])
    elif how == 3:
        octets[6:14] = one_of(rng, (bytes(8), b"\xff" * 8, rng.randbytes(8), bytes(reversed(instance))))
    elif how == 4:
        octets = octets[: rng.randrange(14)]
    else:
        octets += rng.randbytes(one_of(rng, (1, 2, 100_000)))
    return [bytes(octets), *rest]


def _others_message(rng: random.Random, instance: bytes) -> list[bytes]:
    """What only the pool, or only a worker, says."""
    if rng.random() < 0.5:
        kind = one_of(rng, NOT_CLIENTS)
        return [MAGIC + bytes((VERSION, kind)) + instance, msgpack.packb([] if kind == wire.Pong.kind else [1, 2])]
    kind = one_of(rng, sorted(WORKER_MESSAGES))
    hello = worker_messages.Hello(0, 1, None, bytes(32))
    return [MAGIC + bytes((VERSION, kind)) + instance, pack(hello)]


def _wrong_field(rng: random.Random, instance: bytes) -> list[bytes]:
    """A value of another type, as many fields as there should be, or not."""
    kind = one_of(rng, sorted(TAKES, key=lambda kind: kind.kind))
    fields = _fields(kind)
    how = rng.randrange(3)
    at = rng.randrange(len(fields))
    if how == 0:
        fields[at] = unlike(rng, *TAKES[kind][at])
    elif how == 1:
        del fields[rng.randrange(len(fields)) :]
    else:
        fields += [0] * one_of(rng, (1, 2, 1000))
    return _framed(kind, instance, msgpack.packb(fields, use_bin_type=True))


def _wrong_bytes(rng: random.Random, instance: bytes) -> list[bytes]:
    """One field is bytes that no field may be."""
    kind = one_of(rng, sorted(TAKES, key=lambda kind: kind.kind))
    packed = [msgpack.packb(field, use_bin_type=True) for field in _fields(kind)]
    texts = [at for at, types in enumerate(TAKES[kind]) if str in types]
    if texts and rng.random() < 0.5:
        octets = one_of(rng, UTF_8) + b"x" * 3
        packed[one_of(rng, texts)] = bytes((0xA0 | len(octets),)) + octets
    else:
        packed[rng.randrange(len(packed))] = one_of(rng, WRONG_TYPES)
    return _framed(kind, instance, bytes((0x90 | len(packed),)) + b"".join(packed))


def _header(rng: random.Random, instance: bytes) -> list[bytes]:
    """Cut, doubled, followed by more, deep, endless, or too large."""
    messages: tuple[Message, ...] = (wire.Cancel(1), wire.Ask(1, "status", ""))
    preamble, header = encode(one_of(rng, messages), instance)
    made = one_of(
        rng,
        (
            b"",
            header[: rng.randrange(len(header))],
            header + header,
            header + b"\xc0",
            b"\x91" * 60_000 + b"\xc0",
            b"\x81\xa1a" * 20_000 + b"\xc0",
            b"\xdd\xff\xff\xff\xff" + header,
            b"\xdf\x7f\xff\xff\xff" + b"\xa1a" * 64,
            b"\xdb\xff\xff\xff\xff" + b"x" * 64,
            b"\xc6\xff\xff\xff\xff" + b"x" * 64,
            b"\xc9\xff\xff\xff\xff\x01" + b"x" * 64,
            rng.randbytes(rng.choice((1, 3, 1000))) + b"\xc1",
            b"\xdc\xff\xff" + b"\xc0" * 65_535,
            b"\xdd\0\x10\0\0" + b"\x80" * (1 << 20),
        ),
    )
    return [preamble, made]


def _job(rng: random.Random, instance: bytes) -> list[bytes]:
    """One of the fixed fields of a job is what it cannot be, or says something else than what follows."""
    job = doubled(rng, rng.randrange(1 << 40))
    first, *rest = framed(job.submit, instance, job.payload)
    octets = bytearray(first)
    how = rng.randrange(6)
    if how == 0:
        (said,) = struct.unpack_from("<H", octets, FLAGS)  # with these, nothing but the new one is wrong
        struct.pack_into("<H", octets, FLAGS, said | one_of(rng, (8, 16, 1 << 15, 0xFFFF)))
    elif how == 1:
        struct.pack_into("<d", octets, TIMEOUT, one_of(rng, NOT_TIMEOUTS))
    elif how == 2:
        at = one_of(rng, (NAMES, NAMES + 4, NAMES + 8))  # bytes of names, bytes of the table, tensors
        (there,) = struct.unpack_from("<I", octets, at)
        other = [count for count in (0, 1, there + 1, there + 4, 4096, 1 << 31, (1 << 32) - 1) if count != there]
        struct.pack_into("<I", octets, at, one_of(rng, other))
    elif how == 3:
        at, counts = one_of(rng, ((WEIGHT, (0,)), (LENT, (1, 2, 512, 513, 0xFFFF))))
        struct.pack_into("<H", octets, at, one_of(rng, counts))
    elif how == 4:
        octets = octets[: rng.randrange(14, len(octets))]
    else:
        octets += rng.randbytes(one_of(rng, (1, 2, 100_000)))
    return [bytes(octets), *rest]


def _too_large(rng: random.Random, instance: bytes) -> list[bytes]:
    """A header that is as it should be, but for its size."""
    what = "x" * (MOST_HEADER_BYTES + rng.choice((0, 1, 500_000)))
    messages: tuple[Message, ...] = (wire.Open(what), wire.Ask(1, "status", what), wire.Ask(1, what, ""))
    message = one_of(rng, messages)
    return encode(message, instance)


def _frames(rng: random.Random, instance: bytes) -> list[bytes]:
    """Too few frames, or too many."""
    if rng.random() < 0.5:
        return [one_of(rng, (b"", instance, MAGIC, encode(wire.Ping(), instance)[0], rng.randbytes(100_000)))]
    frames = good(rng, instance)
    return [*frames, *[b""] * one_of(rng, (MOST_FRAMES + 1 - len(frames), MOST_FRAMES, 20_000))]


def _fields(kind: type[Message]) -> list[Any]:
    return [GOOD[types[0]] for types in TAKES[kind]]


def _framed(kind: type[Message], instance: bytes, header: bytes) -> list[bytes]:
    return [MAGIC + bytes((VERSION, kind.kind)) + instance, header]


KINDS: Sequence[Callable[[random.Random, bytes], list[bytes]]] = (
    *(_preamble, _preamble, _others_message, _wrong_field, _wrong_field, _wrong_field),
    *(_wrong_bytes, _wrong_bytes, _header, _header, _too_large, _frames, _job, _job, _job),
)
