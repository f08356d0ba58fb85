"""A call's arrays as payload frames, and an answer's frames as arrays. Here numpy is imported."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import zmq

from pool.errors import InvalidInput
from pool.wire.calls import CALL_BYTES, Call, Table
from pool.wire.codec import BadFrame, pack, unpack
from pool.wire.tensors import Array, decode_tensor, encode_tensor, to_array

__all__ = ["decode_answer", "encode_call"]

NAME_CHARS = 1000


def encode_call(model: str, inputs: object, signature: str | None, outputs: Sequence[str] | None) -> list[bytes]:
    """The payload of a SUBMIT: a `Call` and a buffer a tensor, all copies, so the caller may change its arrays.

    `inputs` maps input names to anything array-like, or is the only input itself. Raises `InvalidInput`.
    """
    _check_text("a model's name", model)
    if signature is not None:
        _check_text(f"model {model}: a signature's name", signature)
    named: Mapping[Any, object] = inputs if isinstance(inputs, Mapping) else {"": inputs}
    headers = []
    buffers = []
    for name, value in named.items():
        _check_text(f"model {model}: an input's name", name)
        try:
            array, weak = to_array(value)
        except Exception as error:  # numpy runs the `__array__` of anything
            raise InvalidInput(f"model {model}, input {name!r}: cannot be sent as a tensor: {error}") from None
        header, buffer = encode_tensor(name, array, weak)
        headers.append(header)
        buffers.append(bytes(buffer))
    if outputs is not None:
        if isinstance(outputs, str) or not isinstance(outputs, Iterable):
            raise InvalidInput(
                f"model {model}: outputs is a list of names, not the {type(outputs).__name__} {outputs!r}"
            )
        outputs = tuple(outputs)
        for output in outputs:
            _check_text(f"model {model}: an output's name", output)
    call = Call(signature, outputs, tuple(headers))
    packed = pack(call)
    if len(packed) > CALL_BYTES:
        raise InvalidInput(f"model {model}: {len(headers)} inputs are more than one job can have")
    return [packed, *buffers]


def _check_text(what: str, text: object) -> None:
    if not isinstance(text, str):
        raise InvalidInput(f"{what} is a str, not {type(text).__name__}")
    if len(text) > NAME_CHARS:
        raise InvalidInput(f"{what} has {len(text)} characters, at most {NAME_CHARS} are taken")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{what} is not valid unicode: {text!r}") from None


def decode_answer(frames: Sequence[zmq.Frame]) -> dict[str, Array]:
    """The arrays of a RESULT, over the memory they arrived in. Raises `BadFrame`."""
    if not frames:
        raise BadFrame("an answer without a table")
    tensors = unpack(Table, frames[0].buffer).tensors
    if len(tensors) != len(frames) - 1:
        raise BadFrame(f"{len(frames) - 1} buffers for {len(tensors)} tensors")
    return {header.name: decode_tensor(header, frame.buffer) for header, frame in zip(tensors, frames[1:], strict=True)}
