"""A call's arrays as payload frames, and an answer's frames as arrays. Here numpy is imported."""

from collections.abc import Mapping, Sequence
from typing import Any

import zmq

from pool.errors import InvalidInput
from pool.wire.codec import BadFrame, pack, unpack
from pool.wire.messages import Call, Table
from pool.wire.tensors import Array, decode_tensor, encode_tensor, to_array

__all__ = ["decode_answer", "encode_call"]


def encode_call(model: str, inputs: object, signature: str | None, outputs: Sequence[str] | None) -> list[bytes]:
    """The payload of a SUBMIT: a `Call` and a buffer a tensor, all copies, so the caller may change its arrays.

    `inputs` maps input names to anything array-like, or is the only input itself. Raises `InvalidInput`.
    """
    named: Mapping[Any, object] = inputs if isinstance(inputs, Mapping) else {"": inputs}
    headers = []
    buffers = []
    for name, value in named.items():
        if not isinstance(name, str):
            raise InvalidInput(f"model {model}: an input's name is a str, not {type(name).__name__}")
        try:
            array, weak = to_array(value)
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"model {model}, input {name!r}: cannot be sent as a tensor: {error}") from None
        header, buffer = encode_tensor(name, array, weak)
        headers.append(header)
        buffers.append(bytes(buffer))
    if isinstance(outputs, str):
        raise InvalidInput(f"model {model}: outputs is a list of names, not the str {outputs!r}")
    call = Call(signature, None if outputs is None else tuple(outputs), tuple(headers))
    return [pack(call), *buffers]


def decode_answer(frames: Sequence[zmq.Frame]) -> dict[str, Array]:
    """The arrays of a RESULT, over the memory they arrived in. Raises `BadFrame`."""
    if not frames:
        raise BadFrame("an answer without a table")
    tensors = unpack(Table, frames[0].buffer).tensors
    if len(tensors) != len(frames) - 1:
        raise BadFrame(f"{len(frames) - 1} buffers for {len(tensors)} tensors")
    return {header.name: decode_tensor(header, frame.buffer) for header, frame in zip(tensors, frames[1:], strict=True)}
