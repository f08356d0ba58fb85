"""The Open Inference Protocol over gRPC, with Triton's additions, and gRPC's health service."""

from typing import Any

import numpy as np

from pool import Result
from pool.client.inputs import Options, converted
from pool.door import inference
from pool.door.door import SLOW_BYTES, Door, Refused, aside, number_of
from pool.door.inference import SLOW_ELEMENTS, options_of
from pool.door.protos import message
from pool.door.rpc import refusal, within
from pool.errors import InvalidInput, PoolError
from pool.wire.datatypes import DATATYPE_OF, encoded, tensor_info, unpacked
from pool.wire.records import ModelRecord
from pool.wire.tensors import DTYPE_NAMES, Array

REQUEST, RESPONSE = message("inference.ModelInferRequest"), message("inference.ModelInferResponse")
STREAMED = message("inference.ModelStreamInferResponse")
LISTS = message("inference.InferTensorContents").DESCRIPTOR.fields_by_name
NEWEST = {"": None, "-1": None}
MADE_AS = {"string": object, "uint64": np.uint64}  # where numpy would choose otherwise


class Inference:
    SERVICES = ("inference.GRPCInferenceService", "grpc.health.v1.Health")

    def __init__(self, door: Door) -> None:
        self._door, self._client = door, door.client

    async def check(self, *_: Any) -> Any:
        return {"status": "SERVING" if await self._door.is_ready() else "NOT_SERVING"}

    async def server_live(self, *_: Any) -> Any:
        return {"live": True}

    async def server_ready(self, *_: Any) -> Any:
        return {"ready": await self._door.is_ready()}

    async def server_metadata(self, *_: Any) -> Any:
        return inference.SERVER

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

    async def _record(self, request: Any) -> ModelRecord:
        return await self._door.record(request.name, NEWEST.get(request.version, request.version))

    async def model_infer(self, request: Any, context: Any) -> Any:
        for each in (*request.inputs, *request.outputs):
            if each.parameters:  # such as shared_memory_region, or classification
                raise Refused(501, f"{each.name!r:.80}: this door has no {', '.join(each.parameters):.200}")
        raws = [*request.raw_input_contents]
        is_listed = not raws or any(each.datatype == "BYTES" for each in request.inputs)
        inputs = await aside(is_listed and request.ByteSize() > SLOW_BYTES, inputs_of, request, raws)
        chosen = {name: (value, value.WhichOneof("parameter_choice")) for name, value in request.parameters.items()}
        parameters = {name: getattr(value, field or "bool_param") for name, (value, field) in chosen.items()}
        options = options_of(parameters) if parameters else Options()  # as of most
        options["outputs"] = [each.name for each in request.outputs] or None
        options["version"] = NEWEST.get(request.model_version, request.model_version)
        options["timeout"] = within(context, options.get("timeout"))
        result = await self._door.run("inference", request.model_name, inputs, **options)
        strings = sum(array.size for array in result.values() if array.dtype.hasobject)
        return await aside(strings > SLOW_ELEMENTS, answered, request, result)

    async def model_stream_infer(self, data: bytes, context: Any) -> Any:
        """One of a stream, after the other. An error is an answer of its own, and the stream goes on."""
        answer, text = RESPONSE(), ""
        try:
            request = REQUEST.FromString(data)
            answer.id = request.id
            answer = await self.model_infer(request, context)
            answer.parameters["triton_final_response"].bool_param = True
        except Exception as error:
            text = refusal(error)[1]
        return STREAMED(error_message=text, infer_response=answer)


def inputs_of(request: Any, raws: list[bytes]) -> dict[str, Array]:
    """Raises `InvalidInput`."""
    if raws and len(raws) != len(request.inputs):
        raise InvalidInput(f"{len(request.inputs)} inputs have {len(raws)} raw_input_contents; give one for each")
    arrays: dict[str, Array] = {}
    for number, each in enumerate(request.inputs):
        what = f"input {each.name!r:.80}"
        info = tensor_info(what, each.datatype, [*each.shape])
        if each.name in arrays or (raws and each.HasField("contents")):
            raise InvalidInput(f"{what} is there twice, or has contents beside raw_input_contents; give one of them")
        if raws:
            arrays[each.name] = unpacked(what, info, raws[number], 0, len(raws[number]))
            continue
        # All integers of up to 32 bits are in one of two lists. Half floats have none.
        fields = [f"{each.datatype.rstrip(digits).lower()}_contents" for digits in ("", "12368")]
        values = next(([*getattr(each.contents, field)] for field in fields if field in LISTS), [])
        array = converted(each.name, np.array(values, MADE_AS.get(info.dtype)), info)
        try:
            arrays[each.name] = array.reshape(each.shape)
        except ValueError:
            raise InvalidInput(f"{what}: expected {info}, got {len(values)} elements in its contents") from None
    return arrays


def answered(request: Any, result: Result) -> Any:
    """Raises `InvalidInput` for what the protocol cannot say."""
    answer = RESPONSE(model_name=request.model_name, model_version=number_of(result.version), id=request.id)
    for name in [each.name for each in request.outputs] or result:
        array = result[name]
        if (datatype := DATATYPE_OF.get(DTYPE_NAMES[array.dtype])) is None:
            raise InvalidInput(f"output {name!r:.80} is {array.dtype}, which the protocol does not have; leave it out")
        answer.outputs.add(name=name, datatype=datatype, shape=array.shape)
        answer.raw_output_contents.append(encoded(array) if array.dtype.hasobject else array.tobytes())
    return answer
