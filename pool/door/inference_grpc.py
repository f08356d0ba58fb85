"""The Open Inference Protocol over gRPC, with Triton's additions, and gRPC's health service."""

import asyncio
import math
from collections.abc import AsyncIterator
from typing import Any

import numpy as np

from pool import Result
from pool.client.inputs import converted
from pool.door import inference
from pool.door.datatypes import DATATYPE_OF, options_of, packed_strings, tensor_info, unpacked
from pool.door.door import Door, Refused
from pool.door.inference import aside
from pool.door.protos import message
from pool.door.rpc import received, refusal, within
from pool.errors import InvalidInput, PoolError
from pool.wire import RELEASE
from pool.wire.signatures import TensorInfo
from pool.wire.tensors import DTYPE_NAMES, Array

REQUEST, RESPONSE = message("inference.ModelInferRequest"), message("inference.ModelInferResponse")
STREAMED = message("inference.ModelStreamInferResponse")
LISTS = message("inference.InferTensorContents").DESCRIPTOR.fields_by_name
IN_FLIGHT = 64  # of one stream
NO_EXTENSIONS = ("shared_memory_region", "classification")


class Health:
    NAME = "grpc.health.v1.Health"

    def __init__(self, door: Door) -> None:
        self._door = door

    async def check(self, request: Any, _: Any) -> Any:
        if request.service:
            raise Refused(404, 'ask for the service "": all are ready together')
        return {"status": "SERVING" if await self._door.is_ready() else "NOT_SERVING"}


class Inference:
    NAME = "inference.GRPCInferenceService"

    def __init__(self, door: Door) -> None:
        self._door, self._client = door, door.client

    async def server_live(self, *_: Any) -> Any:
        return {"live": True}

    async def server_ready(self, *_: Any) -> Any:
        return {"ready": await self._door.is_ready()}

    async def server_metadata(self, *_: Any) -> Any:
        return {"name": "tf-worker-pool", "version": RELEASE, "extensions": inference.EXTENSIONS}

    async def model_ready(self, request: Any, _: Any) -> Any:
        try:
            return {"ready": bool(await self._record(request))}
        except PoolError:
            return {"ready": False}

    async def model_metadata(self, request: Any, _: Any) -> Any:
        return inference.metadata(await self._record(request), await self._client.models())

    async def model_config(self, request: Any, _: Any) -> Any:
        return {"config": inference.config(await self._record(request))}

    async def model_statistics(self, request: Any, _: Any) -> Any:
        models = [await self._record(request)] if request.name else await self._client.models()
        return inference.statistics(await self._client.status(), models)

    async def repository_index(self, request: Any, _: Any) -> Any:
        models = inference.index(await self._client.models())
        return {"models": [each for each in models if each["state"] == "READY" or not request.ready]}

    async def _record(self, request: Any) -> dict[str, Any]:
        return await self._door.record(request.name, version_of(request.version))

    async def model_infer(self, request: Any, context: Any) -> Any:
        raws = [*request.raw_input_contents]
        is_listed = not raws or any(each.datatype == "BYTES" for each in request.inputs)
        inputs = await aside(is_listed and request.ByteSize() > inference.SLOW_BYTES, inputs_of, request, raws)
        parameters = plain(request.parameters)
        parameters.pop("triton_enable_empty_final_response", None)  # each answer is a final one
        options = options_of(parameters)
        outputs = [named("output", each) for each in request.outputs]
        options |= {"outputs": outputs or None, "version": version_of(request.model_version)}
        options["timeout"] = within(context, options["timeout"])
        result = await self._door.run("inference", request.model_name, inputs, **options)
        strings = sum(array.size for array in result.values() if array.dtype.hasobject)
        return await aside(strings > inference.SLOW_ELEMENTS, answered, request, outputs, result)

    async def model_stream_infer(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[Any]:
        """Answers in the order of the requests, of which some are under way at a time."""
        running: asyncio.Queue[asyncio.Task[Any] | None] = asyncio.Queue()
        free = asyncio.Semaphore(IN_FLIGHT)

        async def read() -> None:
            try:
                async for data in requests:
                    running.put_nowait(asyncio.create_task(self._streamed(data, context)))
                    await free.acquire()
            finally:
                running.put_nowait(None)

        reader = asyncio.create_task(read())
        try:
            while (task := await running.get()) is not None:
                yield await task
                free.release()
        finally:
            reader.cancel()
            while not running.empty():
                if (task := running.get_nowait()) is not None:
                    task.cancel()

    async def _streamed(self, data: bytes, context: Any) -> Any:
        """An error is an answer of its own, and the stream goes on."""
        answer = RESPONSE()
        try:
            with received(self._door, REQUEST, data) as request:
                answer.id = request.id
                answer = await self.model_infer(request, context)
        except Exception as error:
            return STREAMED(error_message=refusal(error)[1], infer_response=answer)
        answer.parameters["triton_final_response"].bool_param = True
        return STREAMED(infer_response=answer)


def version_of(text: str) -> str | None:
    return None if text in ("", "-1") else text


def plain(parameters: Any) -> dict[str, Any]:
    fields = {name: value.WhichOneof("parameter_choice") for name, value in parameters.items()}
    return {name: getattr(parameters[name], field) for name, field in fields.items() if field}


def named(kind: str, tensor: Any) -> str:
    for extension in NO_EXTENSIONS:
        if extension in tensor.parameters:
            raise Refused(501, f"{kind} {tensor.name!r:.80}: this door has no {extension}")
    return str(tensor.name)


def inputs_of(request: Any, raws: list[bytes]) -> dict[str, Array]:
    """Raises `InvalidInput` and `Refused`."""
    if raws and len(raws) != len(request.inputs):
        raise InvalidInput(f"{len(request.inputs)} inputs have {len(raws)} raw_input_contents; give one for each")
    arrays: dict[str, Array] = {}
    for number, each in enumerate(request.inputs):
        what = f"input {named('input', each)!r:.80}"
        info = tensor_info(what, each.datatype, [*each.shape])
        if each.name in arrays or (raws and each.HasField("contents")):
            raise InvalidInput(f"{what} is there twice, or has contents beside raw_input_contents; give one of them")
        if raws:
            arrays[each.name] = unpacked(what, info, raws[number], 0, len(raws[number]))
        else:
            arrays[each.name] = listed(each.name, info, each.datatype.lower(), each.contents)
    return arrays


def listed(name: str, info: TensorInfo, datatype: str, contents: Any) -> Array:
    field, shape = f"{datatype}_contents", info.shape or ()
    if field not in LISTS:
        field = f"{datatype.rstrip('12368')}_contents"
    if field not in LISTS:
        raise InvalidInput(f"input {name!r:.80}: {info.dtype} comes in raw_input_contents alone")
    values = [*getattr(contents, field)]
    if len(values) != math.prod(shape):
        raise InvalidInput(f"input {name!r:.80}: expected {info}, got {len(values)} {field}")
    return converted(name, np.array(values, object if info.dtype == "string" else None), info).reshape(shape)


def answered(request: Any, outputs: list[str], result: Result) -> Any:
    """Raises `InvalidInput` for what the protocol cannot say."""
    version = inference.number_of(result.version)
    answer = RESPONSE(model_name=request.model_name, model_version=version, id=request.id)
    for name in outputs or result:
        array = result[name]
        datatype = DATATYPE_OF.get(DTYPE_NAMES[array.dtype])
        if datatype is None:
            raise InvalidInput(f"output {name!r:.80} is {array.dtype}, which the protocol does not have; leave it out")
        answer.outputs.add(name=name, datatype=datatype, shape=array.shape)
        answer.raw_output_contents.append(packed_strings(array) if array.dtype.hasobject else array.tobytes())
    return answer
