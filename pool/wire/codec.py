"""Frozen dataclasses to msgpack and back.

A dataclass travels as the array of its fields, in order; a `Record` by their names. The annotations are the schema:
whatever bytes come in, a value of the declared types or `BadFrame` comes out, never another exception. A union of
dataclasses travels with the index of its member before it, so one class an outcome costs nothing.

Annotations understood: bool, int, float, str, bytes, `X | None`, `tuple[X, ...]`, `Mapping[str, X]`, an `Enum` or a
`Literal` of strings, a dataclass, a union of dataclasses, and `Plain`: whatever JSON can say. A `Record` may have
others of its own kind.
"""

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from typing import Any, TypeVar

import msgpack

__all__ = ["MAX_HEADER_BYTES", "BadFrame", "Plain", "Record", "pack", "packed", "unpack"]

MAX_HEADER_BYTES = 4 << 20  # a READY with twenty models' signatures is 100 kB; nothing honest comes near

_PLAIN = (bool, int, str, bytes)  # what msgpack gives back as it was

T = TypeVar("T")
Convert = Callable[[Any], Any]
Plain = typing.NewType("Plain", object)


class BadFrame(Exception):
    """The bytes are not a message of this protocol; the text says at which field and why."""


class Record:
    """A frozen dataclass that people and programs read, as they do `--json`.

    It can grow: whoever does not know a field leaves it out, and one with a default may be missing.
    """

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Dicts, lists, texts and numbers, as `--json` prints them."""
        encode, _ = _converters(typing.cast(typing.Hashable, type(self)))
        return typing.cast(dict[str, Any], encode(self))


def pack(value: object) -> bytes:
    """The bytes of a frozen dataclass."""
    encode, _ = _converters(typing.cast(typing.Hashable, type(value)))
    return packed(encode(value))


def packed(value: object) -> bytes:
    """The msgpack of plain values, the only way in which they leave a process.

    A text that UTF-8 cannot hold, as an error may quote, is sent as `pool.wire.texts.legible` has it.
    """
    try:
        return bytes(msgpack.packb(value, use_bin_type=True))
    except UnicodeEncodeError:  # rare, and to ask msgpack for it each time costs each message
        return bytes(msgpack.packb(value, use_bin_type=True, unicode_errors="backslashreplace"))


def unpack(kind: type[T], data: bytes | memoryview, most_bytes: int = MAX_HEADER_BYTES) -> T:
    """A `kind` from bytes that anybody may have sent. Raises `BadFrame` and nothing else.

    `most_bytes` bounds what is decoded at all: Python objects take up to 80 times the bytes that describe them.
    """
    if len(data) > most_bytes:
        raise BadFrame(f"{kind.__name__}: a header of {len(data)} bytes")
    try:
        raw = msgpack.unpackb(data, raw=False, use_list=False, strict_map_key=True)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise BadFrame(f"not msgpack: {type(error).__name__}") from None
    _, decode = _converters(typing.cast(typing.Hashable, kind))
    try:
        return typing.cast(T, decode(raw))
    except BadFrame as error:
        raise BadFrame(f"{kind.__name__}: {error}") from None


@cache
def _converters(annotation: Any) -> tuple[Convert, Convert]:
    """How to turn a value of this annotation into msgpack's types, and back with every check."""
    if annotation in _PLAIN:
        return _same, _exactly(annotation)
    if annotation is float:
        return _same, _number
    if annotation is Plain:
        return _same, _plain
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        members = tuple(member for member in arguments if member is not types.NoneType)
        inner = _converters(members[0]) if len(members) == 1 else _union(members)
        return inner if len(members) == len(arguments) else _optional(*inner)
    if origin is typing.Literal:
        return _same, _one_of(arguments)
    if origin is tuple:
        return _sequence(*_converters(arguments[0]))
    if origin is Mapping:
        return _mapping(*_converters(arguments[1]))
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return _enum(annotation)
    if dataclasses.is_dataclass(annotation):
        kind = typing.cast(type, annotation)
        return _named(kind) if issubclass(kind, Record) else _record(kind)
    raise TypeError(f"{annotation!r} cannot travel")


def _same(value: Any) -> Any:
    return value


def _exactly(kind: type) -> Convert:
    def decode(raw: Any) -> Any:
        if type(raw) is not kind:
            raise BadFrame(f"expected {kind.__name__}, got {type(raw).__name__}")
        return raw

    return decode


def _number(raw: Any) -> float:
    if type(raw) not in (int, float):
        raise BadFrame(f"expected float, got {type(raw).__name__}")
    return float(raw)


def _plain(raw: Any) -> Any:
    if isinstance(raw, tuple):
        return [_plain(each) for each in raw]
    if isinstance(raw, dict):
        return _mapping(_same, _plain)[1](raw)
    if raw is not None and type(raw) not in (bool, int, float, str):
        raise BadFrame(f"expected what JSON can say, got {type(raw).__name__}")
    return raw


def _optional(encode: Convert, decode: Convert) -> tuple[Convert, Convert]:
    return (
        lambda value: None if value is None else encode(value),
        lambda raw: None if raw is None else decode(raw),
    )


def _elements(raw: Any) -> tuple[Any, ...]:
    if type(raw) is not tuple:
        raise BadFrame(f"expected an array, got {type(raw).__name__}")
    return raw


def _sequence(encode: Convert, decode: Convert) -> tuple[Convert, Convert]:
    return (
        lambda value: [encode(element) for element in value],
        lambda raw: tuple(decode(element) for element in _elements(raw)),
    )


def _mapping(encode: Convert, decode: Convert) -> tuple[Convert, Convert]:
    def decode_mapping(raw: Any) -> dict[str, Any]:
        if type(raw) is not dict:
            raise BadFrame(f"expected a map, got {type(raw).__name__}")
        if not all(type(key) is str for key in raw):
            raise BadFrame("expected a map of strings")
        return {key: decode(value) for key, value in raw.items()}

    return lambda value: {key: encode(element) for key, element in value.items()}, decode_mapping


def _enum(kind: type[Enum]) -> tuple[Convert, Convert]:
    members = {member.value: member for member in kind}

    def decode(raw: Any) -> Enum:
        if type(raw) is not str or raw not in members:
            raise BadFrame(f"no {kind.__name__}: {raw!r:.40}")
        return members[raw]

    return lambda value: value.value, decode


def _one_of(texts: tuple[str, ...]) -> Convert:
    def decode(raw: Any) -> Any:
        if type(raw) is not str or raw not in texts:
            raise BadFrame(f"expected one of {', '.join(texts)}, got {raw!r:.40}")
        return raw

    return decode


def _union(members: tuple[type, ...]) -> tuple[Convert, Convert]:
    converters = [_converters(member) for member in members]
    index = {member: position for position, member in enumerate(members)}

    def encode(value: Any) -> Any:
        position = index[type(value)]
        return [position, converters[position][0](value)]

    def decode(raw: Any) -> Any:
        pair = _elements(raw)
        if len(pair) != 2 or type(pair[0]) is not int or not 0 <= pair[0] < len(members):
            raise BadFrame(f"expected one of {', '.join(member.__name__ for member in members)}")
        return converters[pair[0]][1](pair[1])

    return encode, decode


def _fields(kind: type) -> list[tuple[dataclasses.Field[Any], Convert, Convert]]:
    hints = typing.get_type_hints(kind)
    return [(field, *_converters(hints[field.name])) for field in dataclasses.fields(kind)]


def _decoded(name: str, decode: Convert, raw: Any) -> Any:
    try:
        return decode(raw)
    except BadFrame as error:
        raise BadFrame(f"{name}: {error}") from None


def _record(kind: type) -> tuple[Convert, Convert]:
    fields = _fields(kind)
    converters = [(field.name, encode, decode) for field, encode, decode in fields]

    def encode(value: Any) -> list[Any]:
        return [encode_field(getattr(value, name)) for name, encode_field, _ in converters]

    def decode(raw: Any) -> Any:
        elements = _elements(raw)
        if len(elements) != len(converters):
            raise BadFrame(f"expected {len(converters)} fields, got {len(elements)}")
        values = []
        for (name, _, decode_field), element in zip(converters, elements, strict=True):
            values.append(_decoded(name, decode_field, element))
        return kind(*values)

    return encode, decode


def _named(kind: type) -> tuple[Convert, Convert]:
    @cache  # when they are first needed: one may be of this kind again
    def fields() -> dict[str, tuple[dataclasses.Field[Any], Convert, Convert]]:
        return {field.name: (field, encode, decode) for field, encode, decode in _fields(kind)}

    def encode(value: Any) -> dict[str, Any]:
        return {name: encode_field(getattr(value, name)) for name, (_, encode_field, _) in fields().items()}

    def decode(raw: Any) -> Any:
        if type(raw) is not dict:
            raise BadFrame(f"expected a map, got {type(raw).__name__}")
        found = {}
        for name, (field, _, decode_field) in fields().items():
            if name in raw:
                found[name] = _decoded(name, decode_field, raw[name])
            elif field.default is field.default_factory is dataclasses.MISSING:
                raise BadFrame(f"{name} is missing")
        return kind(**found)

    return encode, decode
