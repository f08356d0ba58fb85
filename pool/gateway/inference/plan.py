"""What an infer request asks for: from its path and its JSON header to names, slices and options, checked.

    {"id", "parameters": {…}, "inputs": [{"name", "datatype", "shape", "data" or parameters.binary_data_size}],
     "outputs": [{"name", "parameters": {"binary_data"}}]}

Nothing of it depends on the bytes behind the header, so a plan serves all requests with the same header.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pool.gateway import json_text
from pool.gateway.http import Refused
from pool.gateway.inference import json_data, strings
from pool.gateway.inference.datatypes import BYTES, DATATYPES
from pool.gateway.inference.options import brief, flag, members, options_of, text_of
from pool.wire.hot import Buffer
from pool.wire.tensors import Array

__all__ = ["Answered", "Plan", "prepared"]

MOST_AXES = 64  # as many as numpy has
REGION = "shared_memory_region"
NO_REGIONS = "shared memory regions are not served here (501): send tensors in the body; large ones travel uncopied"


class Binary(NamedTuple):
    """An input in the bytes behind the header, `at` bytes from their beginning."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    elements: int
    at: int
    size_bytes: int


class Answered(NamedTuple):
    """The head of an answer that had these tensors, and its HTTP headers."""

    tensors: list[Any]
    head: bytes
    headers: tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Plan:
    """`given`: the inputs that the header itself has. `size_bytes`: of all that is behind it.

    `outputs`: each name, and whether it is to be binary; None: all outputs, as `is_binary` says.
    `id`: only where it is not the header's first member, see `pool.gateway.inference.plans`.
    """

    model: str
    version: int | str | None
    options: dict[str, Any]
    given: Mapping[str, Array]
    binary: Sequence[Binary]
    size_bytes: int
    elements: int
    """How many are to be read one by one."""
    outputs: Mapping[str, bool] | None
    is_binary: bool
    id: str | None
    last: Answered | None = field(default=None)
    """What was answered last, where all of it was binary."""

    def arrays(self, body: NDArray[np.uint8], start: int) -> dict[str, Array]:
        """The inputs, over the body's memory. `start`: where the header ends. Raises `Refused`."""
        if start + self.size_bytes != len(body):
            behind = len(body) - start
            raise Refused(400, f"{behind} bytes follow the header; its binary_data_size are {self.size_bytes} together")
        found = {**self.given}
        for name, dtype, shape, count, at, size_bytes in self.binary:
            if dtype.hasobject:
                begin = start + at
                found[name] = strings.split(name, body[begin : begin + size_bytes].tobytes(), shape, count)
                continue
            array = found[name] = np.ndarray(shape, dtype, body, start + at)
            if dtype.kind == "b" and array.view(np.uint8).max() > 1:
                raise Refused(400, f"input {name!r:.200}: an element of BOOL is a byte 0 or 1")
        return found


def prepared(model: str, version: int | str | None, header: Buffer, *, has_binary: bool) -> Plan:
    """`has_binary`: whether the request says where its header ends. Raises `Refused`."""
    asked = json_text.read(header)
    if not isinstance(asked, dict):
        raise Refused(400, "the request is a JSON object with `inputs`")
    parameters = members("parameters", asked.get("parameters"))
    is_binary = flag("parameter", parameters, "binary_data_output", False)
    given: dict[str, Array] = {}
    binary: list[Binary] = []
    at = 0
    inputs = asked.get("inputs")
    if not isinstance(inputs, list):
        raise Refused(400, "the request has no list of `inputs`")
    names = set()
    for number, told in enumerate(inputs):
        name = text_of(f"inputs[{number}]", told, "name")
        if name in names:
            raise Refused(400, f"input {name!r:.200} is there twice")
        names.add(name)
        datatype, dtype, shape = _tensor(name, told)
        size_bytes = _size_bytes(name, told, has_binary)
        if size_bytes is None:
            given[name] = json_data.read(name, datatype, dtype, shape, told["data"])
            continue
        count = _count(name, datatype, dtype, shape, size_bytes)
        if count:
            binary.append(Binary(name, dtype, shape, count, at, size_bytes))
            at += size_bytes
        else:
            given[name] = _empty(name, dtype, shape)
    outputs = _outputs(asked.get("outputs"), is_binary)
    options = options_of(parameters)
    if outputs:
        options["outputs"] = tuple(outputs)
    if version is not None:
        options["version"] = version
    elements = sum(each.elements for each in binary if each.dtype == BYTES)
    own_id = text_of("the request", asked, "id") if "id" in asked else None
    return Plan(model, version, options, given, binary, at, elements, outputs, is_binary, own_id)


def _tensor(name: str, told: Mapping[str, Any]) -> tuple[str, np.dtype[Any], tuple[int, ...]]:
    what = f"input {name!r:.200}"
    datatype = text_of(what, told, "datatype")
    dtype = DATATYPES.get(datatype)
    if dtype is None:
        raise Refused(400, f"{what}: there is no datatype {datatype!r:.40}; there are {', '.join(DATATYPES)}")
    shape = told.get("shape")
    if not isinstance(shape, list) or not all(type(axis) is int and 0 <= axis < 1 << 63 for axis in shape):
        raise Refused(400, f"{what}: its shape is {brief(shape)}; give a list of lengths from 0")
    if len(shape) > MOST_AXES or math.prod(shape) >= 1 << 63:
        raise Refused(400, f"{what}: {json_data.NO_TENSOR} {brief(shape)}")
    return datatype, dtype, tuple(shape)


def _size_bytes(name: str, told: Mapping[str, Any], has_binary: bool) -> int | None:
    """Of an input behind the header; None: its data is here."""
    what = f"input {name!r:.200}"
    parameters = members(f"{what}: parameters", told.get("parameters"))
    if REGION in parameters:
        raise Refused(501, f"{what}: {NO_REGIONS}")
    if ("data" in told) == ("binary_data_size" in parameters):
        raise Refused(400, f"{what}: give either `data` or the parameter `binary_data_size`")
    if "data" in told:
        return None
    size_bytes = parameters["binary_data_size"]
    if type(size_bytes) is not int or size_bytes < 0:
        raise Refused(400, f"{what}: binary_data_size is {brief(size_bytes)}; give a number of bytes")
    if size_bytes and not has_binary:
        raise Refused(400, f"{what}: binary data needs the header Inference-Header-Content-Length")
    return size_bytes


def _count(name: str, datatype: str, dtype: np.dtype[Any], shape: tuple[int, ...], size_bytes: int) -> int:
    """The elements, which these bytes must be able to hold before anything is made of them."""
    count = math.prod(shape)
    each = strings.LENGTH_BYTES if dtype == BYTES else dtype.itemsize
    if count * each > size_bytes or (count * each < size_bytes and (dtype != BYTES or not count)):
        least = "at least " if dtype == BYTES else ""
        said = f"{datatype} {list(shape)} takes {least}{count * each} bytes, binary_data_size is {size_bytes}"
        raise Refused(400, f"input {name!r:.200}: {said}")
    return count


def _empty(name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    try:
        return np.empty(shape, dtype)
    except ValueError:  # its other axes are longer than memory
        raise Refused(400, f"input {name!r:.200}: {json_data.NO_TENSOR} {list(shape)}") from None


def _outputs(told: object, is_binary: bool) -> Mapping[str, bool] | None:
    if told is None or told == []:
        return None  # as Triton has it
    if not isinstance(told, list):
        raise Refused(400, "`outputs` is a list")
    outputs: dict[str, bool] = {}
    for number, each in enumerate(told):
        name = text_of(f"outputs[{number}]", each, "name")
        what = f"output {name!r:.200}"
        parameters = members(f"{what}: parameters", each.get("parameters"))
        if parameters.get("classification", 0) != 0:
            raise Refused(501, f"{what}: the classification extension is not served here: ask for the scores")
        if REGION in parameters:
            raise Refused(501, f"{what}: {NO_REGIONS}")
        if name in outputs:
            raise Refused(400, f"{what} is asked for twice")
        outputs[name] = flag(what, parameters, "binary_data", is_binary)
    return outputs
