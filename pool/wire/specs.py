"""The spec of a body: which model, and each tensor's name, dtype and shape. It needs no numpy.

Equal specs are equal bytes, so every process parses each of them once and looks it up in a dict afterwards.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgpack

MOST_SPEC_BYTES = 64 << 10
MOST_TENSORS = 1024
MOST_RANK = 32
MOST_BYTES = 1 << 46
MOST_NAME = 1024
MOST_SLOT = 1 << 20

ITEM_BYTES = {
    **dict.fromkeys(("bool", "int8", "uint8", "float8_e5m2", "float8_e5m2fnuz"), 1),
    **dict.fromkeys(("float8_e4m3fn", "float8_e4m3fnuz", "float8_e4m3b11fnuz"), 1),
    # Types of less than a byte take one byte each, as ml_dtypes keeps them.
    **dict.fromkeys(("int2", "uint2", "int4", "uint4", "float4_e2m1fn"), 1),
    **dict.fromkeys(("int16", "uint16", "float16", "bfloat16"), 2),
    **dict.fromkeys(("int32", "uint32", "float32"), 4),
    **dict.fromkeys(("int64", "uint64", "float64", "complex64"), 8),
    "complex128": 16,
    "string": 8,  # where it ends among the bytes that follow the fixed part
}
"""TensorFlow's names of the dtypes that travel, and the bytes of an element in the fixed part."""

Description = tuple[tuple[str, str, tuple[int, ...]], ...]
"""Name, dtype and shape of each tensor, in the order of the names."""


class BadMessage(Exception):
    """Bytes that no correct peer sends."""


class Tensor(NamedTuple):
    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int  # of its fixed part


class JobSpec(NamedTuple):
    model: str
    # "" is the model's default one. None: a `Session.run`, whose outputs and tensors are named as in the graph.
    signature: str | None
    outputs: tuple[str, ...] | None  # None: all
    tensors: tuple[Tensor, ...]
    slot: int = -1  # the only one that may run it; -1: any


def unpack(data: bytes | memoryview) -> Any:
    """Raises `BadMessage`."""
    try:
        return msgpack.unpackb(data)
    except Exception as error:  # msgpack raises a dozen kinds
        raise BadMessage(f"no msgpack: {type(error).__name__}") from None


def aligned(length: int) -> int:
    """Each tensor begins at a multiple of 64 bytes: TensorFlow takes such a buffer over without a copy."""
    return (length + 63) & ~63


def job_spec(
    model: str, signature: str | None, outputs: Sequence[str] | None, description: Description, slot: int = -1
) -> bytes:
    return bytes(msgpack.packb((model, signature, outputs, description, slot)))


def parse_job(spec: bytes) -> JobSpec:
    """Raises `BadMessage`."""
    model, signature, outputs, described, slot = _fields(spec, 5)
    if not isinstance(model, str) or not isinstance(signature, str | None) or len(model) > MOST_NAME:
        raise BadMessage("a spec without a model and a signature")
    if outputs is not None or signature is None:
        if not isinstance(outputs, list) or not outputs or not all(isinstance(each, str) for each in outputs):
            raise BadMessage("outputs that are not names")
        outputs = tuple(outputs)
        if len(set(outputs)) != len(outputs):
            raise BadMessage("an output that is named twice")
    if type(slot) is not int or not -1 <= slot <= MOST_SLOT:
        raise BadMessage(f"no slot {slot!r:.40}")
    return JobSpec(model, signature, outputs, _tensors(described), slot)


def answer_spec(slot: int, device: str, version: str, description: Description) -> bytes:
    return bytes(msgpack.packb((slot, device, version, description)))


def parse_answer(spec: bytes) -> tuple[int, str, str, tuple[Tensor, ...]]:
    """The slot, its device, the model's version, and the outputs. Raises `BadMessage`."""
    slot, device, version, described = _fields(spec, 4)
    if type(slot) is not int or not isinstance(device, str) or not isinstance(version, str):
        raise BadMessage("an answer that does not say where it comes from")
    return slot, device, version, _tensors(described)


def fixed_bytes(tensors: Sequence[Tensor]) -> int:
    """Of the part whose size the spec decides. The bytes of strings come after it."""
    return sum([aligned(tensor.nbytes) for tensor in tensors])


def common_rows(shapes: Iterable[tuple[int, ...]]) -> int:
    """The first dimension of all; 0 if there is none, or they differ."""
    sizes = {shape[0] if shape else 0 for shape in shapes}
    return sizes.pop() if len(sizes) == 1 else 0


def _fields(spec: bytes, count: int) -> list[Any]:
    if len(spec) > MOST_SPEC_BYTES:
        raise BadMessage(f"a spec of {len(spec)} bytes; {MOST_SPEC_BYTES} are the most")
    fields = unpack(spec)
    if not isinstance(fields, list) or len(fields) != count:
        raise BadMessage(f"a spec that has not {count} fields")
    return fields


def _tensors(described: object) -> tuple[Tensor, ...]:
    if not isinstance(described, list) or len(described) > MOST_TENSORS:
        raise BadMessage(f"tensors that are no list of {MOST_TENSORS} at the most")
    found: list[Tensor] = []
    for each in described:
        match each:
            case [str() as name, str() as dtype, list() as shape] if len(name) <= MOST_NAME:
                pass
            case _:
                raise BadMessage("a tensor without name, dtype and shape")
        if found and name <= found[-1].name:
            raise BadMessage("tensors that are not in the order of their names")
        if dtype not in ITEM_BYTES:
            raise BadMessage(f"no dtype {dtype!r:.40}")
        if len(shape) > MOST_RANK or not all(type(axis) is int and 0 <= axis <= MOST_BYTES for axis in shape):
            raise BadMessage(f"no shape {shape!r:.80}")
        found.append(Tensor(name, dtype, tuple(shape), ITEM_BYTES[dtype] * math.prod(shape)))
    if sum(tensor.nbytes for tensor in found) > MOST_BYTES:
        raise BadMessage(f"tensors of more than {MOST_BYTES} bytes")
    return tuple(found)
