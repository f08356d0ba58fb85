"""TensorFlow Serving's services over gRPC. Tensors are answered in typed lists, as TensorFlow Serving does it."""

import math
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
from google.protobuf.json_format import ParseDict

from pool import Result
from pool.client.inputs import Options, converted
from pool.door.door import SLOW_BYTES, Door, aside, number_of
from pool.door.inference import signature_of
from pool.door.inference_grpc import MADE_AS
from pool.door.protos import POOL, message
from pool.door.rpc import within
from pool.door.serving import DATA_TYPES, classified, joined, metadata, outputs_of, regressed, states
from pool.errors import InvalidInput
from pool.wire.datatypes import unpacked
from pool.wire.signatures import DEFAULT_SIGNATURE, TensorInfo
from pool.wire.specs import MOST_RANK
from pool.wire.tensors import DTYPE_NAMES, DTYPES, Array

MOST_UNPACKED, MOST_FILLED = 8, 1 << 20  # times a message's bytes; what tensors may have that say one element for many
TENSOR, PACKED = message("tensorflow.TensorProto"), message("tensorflow.PackedTensor")
PREDICTED = message("tensorflow.serving.PredictResponse")
KINDS = {"tensorflow/serving/classify": "classification_result", "tensorflow/serving/regress": "regression_result"}
CLASSIFY, REGRESS = KINDS
NAMES = {"float32": "float", "float64": "double", "complex64": "scomplex", "complex128": "dcomplex"}
NAMES |= {"float16": "half", "bfloat16": "half"}
LISTS = {dtype: f"{NAMES.get(dtype, dtype.partition('_')[0])}_val" for dtype in DTYPES}
LISTS = {dtype: field if field in TENSOR.DESCRIPTOR.fields_by_name else "int_val" for dtype, field in LISTS.items()}
"""By dtype, the field of a TensorProto that lists elements."""
TYPES = {dtype: DATA_TYPES.get(dtype, f"DT_{dtype.upper()}") for dtype in DTYPES}
NUMBERS = TENSOR.DESCRIPTOR.fields_by_name["dtype"].enum_type.values_by_name
DTYPE_OF = {NUMBERS[name].number: dtype for dtype, name in TYPES.items() if name in NUMBERS}


class Serving:
    SERVICES = ("tensorflow.serving.PredictionService", "tensorflow.serving.ModelService")

    def __init__(self, door: Door) -> None:
        self._door = door

    async def predict(self, request: Any, context: Any) -> Any:
        spec, size, asked = request.model_spec, request.ByteSize(), [*request.output_filter] or None
        arrays = await aside(size > SLOW_BYTES, arrays_of, request.inputs, size * MOST_UNPACKED + MOST_FILLED)
        result = await self._run(spec, arrays, asked, context)
        is_slow = sum(array.nbytes for array in result.values()) > SLOW_BYTES
        return await aside(is_slow, predicted, spec_of(spec, result.version), result)

    async def _run(self, spec: Any, inputs: Any, outputs: list[str] | None, context: Any) -> Result:
        options = Options(signature=spec.signature_name or None, outputs=outputs)
        options |= {"version": version_of(spec), "timeout": within(context)}
        return await self._door.run("serving", spec.name, inputs, **options)

    async def classify(self, request: Any, context: Any, method: str = CLASSIFY) -> Any:
        spec, given = request.model_spec, request.input
        kind = given.WhichOneof("kind")
        examples = [each.SerializeToString() for each in getattr(given, kind).examples] if kind else []
        if not examples:
            raise InvalidInput("the input has no examples; give one or more")
        inputs = {"inputs": joined(given.example_list_with_context.context.SerializeToString(), examples)}
        info = signature_of(await self._door.record(spec.name, version_of(spec)), spec.signature_name)
        outputs = outputs_of(method.rpartition("/")[2], spec.signature_name, info)
        result = await self._run(spec, inputs, outputs, context)
        told = classes if method == CLASSIFY else regressions
        return {"model_spec": spec_of(spec, result.version), "result": told(result, len(examples))}

    async def regress(self, request: Any, context: Any) -> Any:
        return await self.classify(request, context, REGRESS)

    async def multi_inference(self, request: Any, context: Any) -> Any:
        results = []
        for each in request.tasks:
            if each.method_name not in KINDS:
                raise InvalidInput(f"method_name is {each.method_name!r:.80}; give {CLASSIFY} or {REGRESS}")
            task = SimpleNamespace(model_spec=each.model_spec, input=request.input)
            told = await self.classify(task, context, each.method_name)
            results.append({"model_spec": told["model_spec"], KINDS[each.method_name]: told["result"]})
        return {"results": results}

    async def get_model_metadata(self, request: Any, _: Any) -> Any:
        if [*request.metadata_field] != ["signature_def"]:
            raise InvalidInput(f"metadata_field is {[*request.metadata_field]!r:.80}; give 'signature_def' alone")
        name = request.model_spec.name
        told = metadata(name, await self._door.record(name, version_of(request.model_spec)))
        told["metadata"]["signature_def"]["@type"] = "type.googleapis.com/tensorflow.serving.SignatureDefMap"
        return ParseDict(told, message("tensorflow.serving.GetModelMetadataResponse")(), descriptor_pool=POOL)

    async def get_model_status(self, request: Any, _: Any) -> Any:
        told = await states(self._door, request.model_spec.name, version_of(request.model_spec))
        return ParseDict(told, message("tensorflow.serving.GetModelStatusResponse")())


def version_of(spec: Any) -> str | None:
    """A number or a label."""
    return str(spec.version.value) if spec.HasField("version") else spec.version_label or None


def spec_of(asked: Any, version: str) -> Any:
    signature = asked.signature_name or DEFAULT_SIGNATURE
    return {"name": asked.name, "signature_name": signature, "version": {"value": int(number_of(version))}}


def regressions(result: Mapping[str, Array], count: int) -> Any:
    return {"regressions": [{"value": value} for value in regressed(result, count).tolist()]}


def classes(result: Mapping[str, Array], count: int) -> Any:
    labels, scores = (array.tolist() for array in classified(result, count))
    texts = [[label.decode("utf-8", "replace") for label in row] for row in labels]
    pairs = [zip(*row, strict=True) for row in zip(texts, scores, strict=True)]
    return {"classifications": [{"classes": [{"label": a, "score": b} for a, b in row]} for row in pairs]}


def arrays_of(inputs: Mapping[str, Any], most: int) -> dict[str, Array]:
    arrays: dict[str, Array] = {}
    for name, tensor in inputs.items():
        arrays[name] = array_of(name, tensor, most)
        most -= arrays[name].nbytes
    return arrays


def array_of(name: str, tensor: Any, most: int) -> Array:
    """Of so many bytes at most, whatever it says. Raises `InvalidInput`."""
    shape, dtype = tuple([each.size for each in tensor.tensor_shape.dim]), DTYPE_OF.get(tensor.dtype)
    if dtype is None or tensor.tensor_shape.unknown_rank or len(shape) > MOST_RANK or min(shape, default=0) < 0:
        raise InvalidInput(f"input {name!r:.80}: no tensor of dtype {tensor.dtype} and shape {shape!r:.80} is taken")
    info, count = TensorInfo(dtype, shape), math.prod(shape)
    if count * DTYPES[dtype].itemsize > most:
        raise InvalidInput(f"input {name!r:.80}: {info} has more than the {most} bytes that its message may stand for")
    if (content := tensor.tensor_content) and dtype != "string":
        return unpacked(f"input {name!r:.80}", info, content, 0, len(content))
    try:
        array = listed(name, tensor, dtype)
        if (missing := count - len(array)) > 0:  # the last one stands for the rest, and zero for all
            last = array[-1:] if len(array) else np.array([b"" if dtype == "string" else 0], DTYPES[dtype])
            array = np.concatenate([array, last.repeat(missing)])
        return array.reshape(shape)
    except InvalidInput:
        raise
    except ValueError as error:
        raise InvalidInput(f"input {name!r:.80}: expected {info}: {error}") from None


def listed(name: str, tensor: Any, dtype: str) -> Array:
    field = LISTS[dtype]
    if field in PACKED.DESCRIPTOR.fields_by_name:
        return np.frombuffer(getattr(PACKED.FromString(tensor.SerializeToString()), field), DTYPES[dtype])
    array = np.array([*getattr(tensor, field)], MADE_AS.get(dtype))
    if field == "half_val":  # the bits of each
        return converted(name, array, TensorInfo("uint16", None)).view(DTYPES[dtype])
    return converted(name, array, TensorInfo(dtype, None))


def predicted(spec: Any, outputs: Mapping[str, Array]) -> Any:
    """Raises `InvalidInput` for what a TensorProto cannot say."""
    answer = PREDICTED(model_spec=spec)
    for name, array in outputs.items():
        dtype = DTYPE_NAMES[array.dtype]
        if TYPES[dtype] not in NUMBERS:
            raise InvalidInput(f"output {name!r:.80} is {dtype}, which is not answered here; leave it out")
        made = answer.outputs[name]
        made.MergeFrom(TENSOR(dtype=TYPES[dtype], tensor_shape={"dim": [{"size": axis} for axis in array.shape]}))
        if (field := LISTS[dtype]) in PACKED.DESCRIPTOR.fields_by_name:
            made.MergeFromString(PACKED(**{field: array.tobytes()}).SerializeToString())
        else:
            getattr(made, field).extend((array.view("u2") if field == "half_val" else array).ravel().tolist())
    return answer
