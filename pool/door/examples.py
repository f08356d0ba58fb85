"""`tf.Example`: features in protobuf's wire format, and what classify and regress make of a model's answer.

    Example   1: Features        Features   1: map<string, Feature>, an entry each: 1: name, 2: Feature
    Feature   1: BytesList   2: FloatList   3: Int64List        each of these   1: repeated value, numbers packed

Two serialized examples in a row are one with the features of both, of which the later count: a context comes first.
What is wrong raises `InvalidInput`.
"""

import binascii
from collections.abc import Mapping
from typing import Any

import numpy as np

from pool.errors import InvalidInput
from pool.wire.signatures import Signature
from pool.wire.tensors import Array


def is_binary(value: Any) -> bool:
    """Whether it stands for bytes: {"b64": TEXT}, and nothing else in it."""
    return type(value) is dict and len(value) == 1 and type(value.get("b64")) is str


def to_bytes(value: Any) -> bytes:
    """Of a text, or of what stands for bytes. As in TensorFlow Serving, base64 may lack its padding."""
    try:
        if type(value) is str:
            return value.encode()
        if is_binary(value):
            bare = "".join(value["b64"].split()).rstrip("=.")
            return binascii.a2b_base64(bare + "=" * (-len(bare) % 4), strict_mode=True)
    except ValueError as error:
        raise InvalidInput(f"a text or base64 is broken: {error!s:.200}") from None
    raise InvalidInput(f'expected a text, or {{"b64": TEXT}} for bytes, got {type(value).__name__}')


def example(features: Any) -> bytes:
    """Of an object of features, each a value or a list of values of one kind. 80.0 is a float, 80 is an integer."""
    if type(features) is not dict:
        raise InvalidInput(f"an example must be an object of features, not {type(features).__name__}")
    entries = [field(1, to_bytes(name)) + field(2, feature(name, value)) for name, value in features.items()]
    return field(1, b"".join(field(1, entry) for entry in entries))


def feature(name: str, value: Any) -> bytes:
    values = value if type(value) is list else [value]
    kinds = set(map(type, values))
    try:
        if kinds <= {str, dict}:
            return field(1, b"".join(field(1, to_bytes(each)) for each in values)) if values else b""
        if kinds == {float}:
            with np.errstate(over="raise"):
                return field(2, field(1, np.array(values).astype("<f4").tobytes()))
        if kinds <= {int, bool}:
            return field(3, field(1, b"".join(map(varint, np.array(values, "i8").astype("u8").tolist()))))
    except (FloatingPointError, OverflowError):
        raise InvalidInput(f"feature {name!r:.80} has a number that float32 or int64 does not hold") from None
    raise InvalidInput(f"feature {name!r:.80} must be strings, floats such as 80.0, or integers, all of one kind")


def field(number: int, content: bytes) -> bytes:
    """One of a message, of bytes."""
    return bytes((number << 3 | 2,)) + varint(len(content)) + content


def varint(number: int) -> bytes:
    """Seven bits a byte, the lowest first."""
    return bytes((number,)) if number < 128 else bytes((number & 127 | 128,)) + varint(number >> 7)


def outputs_of(method: str, name: str, signature: Signature) -> list[str]:
    """Which "classify" or "regress" needs. Names decide: TensorFlow 2 writes the method predict into all signatures."""
    wanted = ("classes", "scores") if method == "classify" else ("outputs",)
    outputs = [each for each in wanted if each in signature.outputs]
    if [(each, info.dtype) for each, info in signature.inputs.items()] == [("inputs", "string")] and outputs:
        return outputs
    raise InvalidInput(f"signature {name!r:.80} is not for {method}: that takes string inputs, and gives {wanted[-1]}")


def classified(found: Mapping[str, Array], count: int) -> tuple[Array, Array]:
    """Labels and scores, [count, k] each. A class without a label has "", one without a score 0."""
    shape = next(iter(found.values())).shape
    labels, scores = found.get("classes", np.full(shape, b"", object)), found.get("scores", np.zeros(shape, "f4"))
    is_right = labels.dtype == object and scores.dtype == np.float32
    if is_right and labels.shape == scores.shape and labels.ndim == 2 and len(labels) == count:
        return labels, scores
    raise InvalidInput(f"classes must be string [{count}, k], and scores float32 [{count}, k]: the model gives others")


def regressed(found: Mapping[str, Array], count: int) -> Array:
    """Float32 [count]."""
    outputs = found["outputs"]
    if outputs.dtype == np.float32 and outputs.shape in ((count,), (count, 1)):
        return outputs.reshape(count)
    raise InvalidInput(f"outputs must be float32 [{count}]: the model gives {outputs.dtype} {[*outputs.shape]}")
