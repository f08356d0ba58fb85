"""The inputs of a `:predict`, from its two formats.

row      {"instances": [ROW, ROW, …]}           a value each, or an object of values by input: axis 0 counts them
column   {"inputs": VALUE or {INPUT: VALUE}}    each input whole
"""

import enum
from typing import Any

from pool.gateway.http import Refused
from pool.gateway.serving.binary import is_binary
from pool.gateway.serving.tensors import to_tensor
from pool.wire.records import SignatureInfo
from pool.wire.tensors import Array

__all__ = ["Format", "inputs_of"]


class Format(enum.Enum):
    ROW = "instances"
    COLUMN = "inputs"


def inputs_of(body: dict[str, Any], signature: SignatureInfo) -> tuple[dict[str, Array], Format]:
    """The inputs that the signature takes, and in which format they came. Raises `Refused`."""
    if "instances" in body and "inputs" in body:
        raise Refused(400, "the request has 'instances' and 'inputs'; give only one of them")
    if "instances" in body:
        return _of_rows(body["instances"], signature), Format.ROW
    if "inputs" in body:
        return _of_columns(body["inputs"], signature), Format.COLUMN
    raise Refused(400, "the request has neither 'instances' nor 'inputs'")


def _of_rows(rows: Any, signature: SignatureInfo) -> dict[str, Array]:
    if type(rows) is not list:
        raise Refused(400, "'instances' is not a list")
    if not rows:
        raise Refused(400, "'instances' is an empty list")
    wanted = signature.inputs.keys()
    if not _is_named(rows[0]):
        name = _only(signature, "'instances' is a list of values; give a list of objects")
        for index, row in enumerate(rows):
            if _is_named(row):
                raise Refused(400, f"instances[{index}] is an object, where instances[0] is a value or a list")
        return {name: to_tensor(rows, signature.inputs[name].dtype, "instances")}
    for index, row in enumerate(rows):
        if not _is_named(row):
            raise Refused(400, f"instances[{index}] is a value or a list, where instances[0] is an object")
        if row.keys() != wanted:
            missing, more = [*(wanted - row.keys())], [*(row.keys() - wanted)]
            what = f"has no {missing[0]!r:.80}" if missing else f"has {more[0]!r:.80}, which is no input"
            raise Refused(400, f"instances[{index}] {what}; {_names(signature)}")
    return {
        name: to_tensor([row[name] for row in rows], spec.dtype, f"{name} of instances")
        for name, spec in signature.inputs.items()
    }


def _of_columns(value: Any, signature: SignatureInfo) -> dict[str, Array]:
    """What an object has besides the inputs is left alone, as TensorFlow Serving does."""
    if not _is_named(value):
        name = _only(signature, "'inputs' is a value or a list; give an object")
        return {name: to_tensor(value, signature.inputs[name].dtype, "inputs")}
    inputs = {}
    for name, spec in signature.inputs.items():
        if name not in value:
            raise Refused(400, f"'inputs' has no {name!r:.80}; {_names(signature)}")
        inputs[name] = to_tensor(value[name], spec.dtype, f"inputs[{name!r:.80}]")
    return inputs


def _is_named(value: Any) -> bool:
    """Whether it is an object of inputs: one that stands for bytes is a value."""
    return type(value) is dict and not is_binary(value)


def _only(signature: SignatureInfo, otherwise: str) -> str:
    if len(signature.inputs) != 1:
        raise Refused(400, f"{otherwise}: {_names(signature)}")
    return next(iter(signature.inputs))


def _names(signature: SignatureInfo) -> str:
    return f"the signature takes {', '.join(sorted(signature.inputs)) or 'nothing'}"
