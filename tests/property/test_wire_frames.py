"""Every rare message survives the wire, and no bytes whatever raise anything but `BadFrame`.

For those with fixed fields see `test_wire_hot`.
"""

import dataclasses
import struct
import types
import typing
from collections.abc import Mapping
from enum import Enum
from typing import Any

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pool.wire.calls import Names, Table, TensorHeader
from pool.wire.client_messages import CLIENT_MESSAGES, Open, Results, Submit
from pool.wire.codec import MAX_HEADER_BYTES, BadFrame, pack, unpack
from pool.wire.frames import NO_INSTANCE, VERSION, Envelope, OtherVersion, check_version, decode, encode
from pool.wire.message import Message
from pool.wire.refusal import Refusal
from pool.wire.worker_messages import WORKER_MESSAGES, Done, Hello, Run

MESSAGES = {**CLIENT_MESSAGES, **WORKER_MESSAGES}

INSTANCE = b"instance"
HOT = (Submit.kind, Results.kind, Run.kind, Done.kind)
KINDS = sorted(MESSAGES.keys() - HOT)


def field_types(kind: Any) -> dict[str, Any]:
    """The declared type of each field; the number of the kind is none."""
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


steady = settings(deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow])


def values(annotation: Any) -> st.SearchStrategy[Any]:
    """Values of an annotation, as `pool.wire.codec` understands it."""
    simple: dict[Any, st.SearchStrategy[Any]] = {
        bool: st.booleans(),
        int: st.integers(-(2**63), 2**64 - 1),
        float: st.floats(),
        str: st.text(max_size=20),
        bytes: st.binary(max_size=20),
        types.NoneType: st.none(),
    }
    if annotation in simple:
        return simple[annotation]
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*map(values, arguments))
    if origin is tuple:
        return st.lists(values(arguments[0]), max_size=3).map(tuple)
    if origin is Mapping:
        return st.dictionaries(st.text(max_size=9), values(arguments[1]), max_size=3)
    if issubclass(annotation, Enum):
        return st.sampled_from(annotation)
    hints = field_types(annotation)
    return st.builds(annotation, *(values(hints[field.name]) for field in dataclasses.fields(annotation)))


class Pairs(list[Any]):
    """A msgpack map of any keys, the same one twice too."""


STRATEGIES = {kind: values(MESSAGES[kind]) for kind in KINDS}
messages = st.sampled_from(KINDS).flatmap(STRATEGIES.__getitem__)

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(),
    st.text(max_size=9),
    st.binary(max_size=9),
    st.builds(msgpack.ExtType, st.integers(0, 127), st.binary(max_size=20)),
    st.builds(msgpack.Timestamp, st.integers(-(2**63), 2**63 - 1), st.integers(0, 999_999_999)),
)
junk = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=5) | st.lists(st.tuples(scalars, inner), max_size=4).map(Pairs),
    max_leaves=12,
)


def to_msgpack(value: Any) -> bytes:
    packer = msgpack.Packer()
    if isinstance(value, Pairs):
        inside = b"".join(to_msgpack(key) + to_msgpack(element) for key, element in value)
        return bytes(packer.pack_map_header(len(value))) + inside
    if isinstance(value, list | tuple):
        return bytes(packer.pack_array_header(len(value))) + b"".join(map(to_msgpack, value))
    return bytes(packer.pack(value))


def preamble(kind: int) -> bytes:
    return b"TFWP" + bytes((VERSION, kind)) + INSTANCE


def conforms(value: Any, annotation: Any) -> bool:
    """Whether a value is what the annotation says, to the letter: True is no int, 1 is no float."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return any(conforms(value, member) for member in arguments)
    if origin is tuple:
        return type(value) is tuple and all(conforms(element, arguments[0]) for element in value)
    if origin is Mapping:
        return type(value) is dict and all(
            type(key) is str and conforms(element, arguments[1]) for key, element in value.items()
        )
    if type(value) is not annotation:
        return False
    hints = field_types(annotation) if dataclasses.is_dataclass(annotation) else {}
    return all(conforms(getattr(value, name), hint) for name, hint in hints.items())


def check(first: bytes, header: bytes) -> None:
    """Whatever it is: a message that is one indeed, or `BadFrame`."""
    try:
        result: Envelope | str = decode(MESSAGES, [first, header, b"payload"])
    except BadFrame as error:
        result = str(error)
    if isinstance(result, str):
        assert 0 < len(result) < 1000
    else:
        assert first[5] not in HOT, "which have no header of msgpack"
        assert type(result.message) is MESSAGES[first[5]]
        assert conforms(result.message, type(result.message))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: MESSAGES[kind].__name__)
@settings(steady, max_examples=30)
@given(data=st.data())
def test_every_kind_of_message_survives(kind: int, data: st.DataObject) -> None:
    message: Message = data.draw(STRATEGIES[kind])
    first, header = encode(message, INSTANCE)
    payload = [b"a", b"b"]
    envelope = decode(MESSAGES, [first, memoryview(header), *payload])
    # Of the same types down to the last field: 1 is not 1.0 or True, and NaN is NaN.
    assert repr(envelope.message) == repr(message)
    assert envelope.instance == INSTANCE
    assert envelope.payload == payload


@pytest.mark.parametrize("kind", [TensorHeader, Table, Names])
@settings(steady, max_examples=60)
@given(data=st.data())
def test_what_travels_in_a_payload_survives(kind: type, data: st.DataObject) -> None:
    value = data.draw(values(kind))
    assert repr(unpack(kind, pack(value))) == repr(value)


@settings(steady, max_examples=200)
@given(st.binary(max_size=40), st.binary(max_size=60))
def test_any_bytes_are_no_message(first: bytes, header: bytes) -> None:
    check(first, header)


@settings(steady, max_examples=300)
@given(st.integers(0, 255), st.binary(max_size=60))
def test_any_header_of_any_kind(kind: int, header: bytes) -> None:
    check(preamble(kind), header)


@settings(steady, max_examples=300)
@given(st.sampled_from(KINDS), junk)
def test_msgpack_of_other_types(kind: int, value: Any) -> None:
    check(preamble(kind), to_msgpack(value))


@settings(steady, max_examples=400)
@given(messages, st.data())
def test_one_element_of_another_type(message: Message, data: st.DataObject) -> None:
    first, header = encode(message, INSTANCE)
    tree = msgpack.unpackb(header)
    inside = tree
    while inside:
        index = data.draw(st.integers(0, len(inside) - 1))
        if isinstance(inside[index], list) and inside[index] and data.draw(st.booleans()):
            inside = inside[index]
            continue
        inside[index] = data.draw(junk)
        break
    check(first, to_msgpack(tree))


@settings(steady, max_examples=400)
@given(messages, st.data())
def test_damaged_messages(message: Message, data: st.DataObject) -> None:
    first, header = (bytearray(frame) for frame in encode(message, INSTANCE))
    for _ in range(data.draw(st.integers(1, 3))):
        frame = data.draw(st.sampled_from([first, header, header, header]))
        position = data.draw(st.integers(0, len(frame)))
        match data.draw(st.sampled_from(["flip", "cut", "insert", "repeat"])):
            case "flip" if position < len(frame):
                frame[position] ^= 1 << data.draw(st.integers(0, 7))
            case "cut":
                del frame[position:]
            case "insert":
                frame[position:position] = data.draw(st.binary(min_size=1, max_size=9))
            case "repeat":
                frame += frame[position:]
    check(bytes(first), bytes(header))


DEEP = 200_000
HOSTILE = {
    "nothing": b"",
    "two values": b"\x90\x90",
    "reserved byte": b"\xc1",
    "arrays in arrays": b"\x91" * DEEP + b"\xc0",
    "arrays without an end": b"\x91" * DEEP,
    "maps in maps": b"\x81\xa0" * DEEP + b"\xc0",
    "maps as keys": b"\x81" * DEEP + b"\xc0",
    "array of 2**32 - 1": b"\xdd\xff\xff\xff\xff",
    "map of 2**32 - 1": b"\xdf\xff\xff\xff\xff",
    "str of 2**32 - 1": b"\xdb\xff\xff\xff\xff",
    "bin of 2**32 - 1": b"\xc6\xff\xff\xff\xff",
    "ext of 2**32 - 1": b"\xc9\xff\xff\xff\xff\x01",
    "many arrays of 2**28": b"\xdd\x0f\xff\xff\xff" * 1000,
    "timestamp of 1 byte": b"\xd4\xff\x00",
    "timestamp of 12 bytes, nanoseconds beyond a second": b"\xc7\x0c\xff" + b"\xff" * 12,
    "timestamp of 8 bytes, nanoseconds beyond a second": b"\xd7\xff" + b"\xff" * 8,
    "a big integer as ext": b"\xc7\x10\x01" + b"\xff" * 16,
    "str that is not UTF-8": b"\x91\xa2\xff\xfe",
    "str with a surrogate": b"\x91\xa3\xed\xa0\x80",
    "a key of another type": b"\x81\x01\x01",
    "a key that is an array": b"\x81\x90\x01",
    "a key twice": b"\x82\xa1a\x01\xa1a\x02",
    "NaN": b"\x91\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00",
    "the largest integer": b"\x91\xcf" + b"\xff" * 8,
    "the smallest integer": b"\x91\xd3\x80" + b"\x00" * 7,
    "too long": b"\xc6" + struct.pack(">I", MAX_HEADER_BYTES) + bytes(MAX_HEADER_BYTES),
}


@pytest.mark.parametrize("header", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_headers(header: bytes) -> None:
    for kind in KINDS:
        check(preamble(kind), header)


@pytest.mark.parametrize("kind", [TensorHeader, Table])
def test_what_travels_in_a_payload_is_bounded_too(kind: type) -> None:
    with pytest.raises(BadFrame, match=f"{kind.__name__}: a header of {MAX_HEADER_BYTES + 1} bytes"):
        unpack(kind, bytes(MAX_HEADER_BYTES + 1))


def test_another_version_is_told_apart() -> None:
    with pytest.raises(OtherVersion, match="install the same release on both") as caught:
        decode(MESSAGES, [b"TFWP\x07\x01" + INSTANCE, b"\xc1"])
    assert caught.value.version == 7


def of_now(first: bytes) -> bytes:
    """The first frame as this version would have it."""
    return first[:4] + bytes((VERSION,)) + first[5:]


# As version 7 said them.
OPEN_OF_7 = b"TFWP\x07\x01" + bytes(8)
HELLO_OF_7 = b"TFWP\x07\x20" + bytes(8)
REFUSAL_OF_7 = [b"TFWP\x07\x00instance", b"\x91\xa3why"]


def test_what_never_changes_is_as_version_7_had_it() -> None:
    """The first six bytes, REFUSAL, and the kinds by which a peer begins; so each side can tell another release."""
    assert encode(Open("name"), NO_INSTANCE)[0][:6] == of_now(OPEN_OF_7)[:6]
    assert encode(Hello(1, 2, None, b"s" * 32), NO_INSTANCE)[0][:6] == of_now(HELLO_OF_7)[:6]
    assert encode(Refusal("why"), b"instance") == [of_now(REFUSAL_OF_7[0]), REFUSAL_OF_7[1]]


@pytest.mark.parametrize("first", [b"TFWP\xff\x20", b"TFWP\x00\x20and whatever that version has in its first frame"])
def test_six_bytes_tell_another_version_whatever_follows(first: bytes) -> None:
    with pytest.raises(OtherVersion) as caught:
        check_version(first)
    assert (caught.value.version, caught.value.kind) == (first[4], Hello.kind)
    with pytest.raises(OtherVersion):
        decode(MESSAGES, [first, b""])


@pytest.mark.parametrize("first", [b"", b"TFWP", b"TFWP\x09", b"TFWQ\x09\x20" + bytes(8)])
def test_what_is_not_of_this_protocol_has_no_version(first: bytes) -> None:
    with pytest.raises(BadFrame) as caught:
        check_version(first)
    assert not isinstance(caught.value, OtherVersion)
