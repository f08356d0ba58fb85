"""`tf.Example`: what JSON's features are in it, and what classify and regress make of a model's answer.

Two serialized examples in a row are one with the features of both, of which the later count: a context comes first.
What is wrong raises `InvalidInput`.
"""

import binascii
from collections.abc import Mapping
from typing import Any

import numpy as np

from pool.door.protos import message
from pool.errors import InvalidInput
from pool.wire.signatures import Signature
from pool.wire.tensors import Array

EXAMPLE, FEATURE = message("tensorflow.Example"), message("tensorflow.Feature")


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
    made = {to_bytes(name).decode(): feature(name, value) for name, value in features.items()}
    return bytes(EXAMPLE(features={"feature": made}).SerializeToString())


def feature(name: str, value: Any) -> Any:
    values = value if type(value) is list else [value]
    kinds = set(map(type, values))
    try:
        if kinds <= {str, dict}:
            return FEATURE(bytes_list={"value": map(to_bytes, values)} if values else None)
        if kinds == {float}:
            with np.errstate(over="raise"):
                return FEATURE(float_list={"value": np.array(values).astype("f4").tolist()})
        if kinds <= {int, bool}:
            return FEATURE(int64_list={"value": np.array(values, "i8").tolist()})
    except (FloatingPointError, OverflowError):
        raise InvalidInput(f"feature {name!r:.80} has a number that float32 or int64 does not hold") from None
    raise InvalidInput(f"feature {name!r:.80} must be strings, floats such as 80.0, or integers, all of one kind")


def outputs_of(method: str, name: str, signature: Signature) -> list[str]:
    """Which "classify" or "regress" needs. Names decide: TensorFlow 2 writes the method predict into all signatures."""
    wanted = ("classes", "scores") if method == "classify" else ("outputs",)
    outputs = [each for each in wanted if each in signature.outputs]
    if [(each, info.dtype) for each, info in signature.inputs.items()] == [("inputs", "string")] and outputs:
        return outputs
    which = f"signature {name!r:.80}" if name else "the default signature"
    raise InvalidInput(f"{which} is not for {method}: that takes string inputs, and gives {wanted[-1]}")


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
