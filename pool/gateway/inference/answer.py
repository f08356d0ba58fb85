"""From a job's result to the response: the head, and behind it the outputs that are binary, in their order."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from pool import JobResult
from pool.gateway import json_text
from pool.gateway.http import Refused, Response
from pool.gateway.inference import json_data, strings
from pool.gateway.inference.datatypes import datatype
from pool.gateway.inference.plan import Answered, Plan
from pool.wire.tensors import dtype_name, tensor_bytes

__all__ = ["HEAD_BYTES", "JSON", "answered"]

HEAD_BYTES = "Inference-Header-Content-Length"
JSON = (("Content-Type", "application/json"),)

COPIED_BYTES = 4096  # below that a copy costs less than a view


def answered(plan: Plan, result: JobResult, own_id: bytes, most: int) -> Response | None:
    """`own_id`: as JSON, b"" for none. None: it would write more than `most` elements one by one.

    Raises `Refused` for an output that cannot be said as it is asked for.
    """
    outputs = plan.outputs
    tensors: list[Any] = [result.version]
    buffers: list[bytes | memoryview] = []
    is_binary, all_binary, slow = plan.is_binary, True, 0
    for name in result if outputs is None else outputs:
        array = result[name]
        if outputs is not None:
            is_binary = outputs[name]
        if not is_binary or array.dtype.hasobject:
            slow += array.size
            if slow > most:
                return None
        if not is_binary:
            all_binary = False
            continue
        if array.dtype.hasobject:
            buffer: bytes | memoryview = strings.join(array.reshape(-1).tolist())
        elif array.nbytes <= COPIED_BYTES:
            buffer = array.tobytes()
        else:
            buffer = memoryview(tensor_bytes(array))
        buffers.append(buffer)
        tensors += name, array.dtype, array.shape, len(buffer)
    last = plan.last
    if last is None or not all_binary or last.tensors != tensors:
        head = _head(plan, result, [len(buffer) for buffer in buffers])
        last = Answered(tensors, head, _headers(head) if buffers else JSON)
        if all_binary:
            plan.last = last
    _, head, headers = last
    if own_id:
        head = b'{"id":' + own_id + b"," + head[1:]
        if buffers:
            headers = _headers(head)
    return Response(200, headers, (head, *buffers))


def _headers(head: bytes) -> tuple[tuple[str, str], ...]:
    return ("Content-Type", "application/octet-stream"), (HEAD_BYTES, str(len(head)))


def _head(plan: Plan, result: JobResult, sizes: Iterable[int]) -> bytes:
    """`sizes`: in bytes, of the binary ones."""
    outputs = []
    is_finite = True
    sized = iter(sizes)
    for name in result if plan.outputs is None else plan.outputs:
        array = result[name]
        kind = datatype(array.dtype)
        if kind is None:
            called = dtype_name(array.dtype)
            raise Refused(400, f"output {name!r:.200} is {called}, for which the protocol has no name; leave it out")
        output: dict[str, Any] = {"name": name, "datatype": kind, "shape": array.shape}
        if plan.is_binary if plan.outputs is None else plan.outputs[name]:
            output["parameters"] = {"binary_data_size": next(sized)}
        else:
            data = output["data"] = json_data.written(name, kind, array)
            is_finite = is_finite and (array.dtype.kind != "f" or bool(np.isfinite(data).all()))
        outputs.append(output)
    if not is_finite:
        for output in outputs:
            if isinstance(data := output.get("data"), np.ndarray):
                output["data"] = data.tolist()
    number = 1 if result.version is None else result.version
    return json_text.write(
        {"model_name": plan.model, "model_version": str(number), "outputs": outputs}, is_finite=is_finite
    )
