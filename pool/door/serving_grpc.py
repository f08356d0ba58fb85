"""TensorFlow Serving's services over gRPC. Tensors are answered in typed lists, as TensorFlow Serving does it."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from google.protobuf.json_format import ParseDict

from pool.client.inputs import Options, converted
from pool.door.datatypes import unpacked
from pool.door.door import Door
from pool.door.examples import classified, outputs_of, regressed
from pool.door.inference import SLOW_BYTES, aside, number_of, signature_of
from pool.door.protos import message
from pool.door.rpc import within
from pool.door.serving import DATA_TYPES, is_narrow, metadata, states
from pool.errors import InvalidInput
from pool.wire.signatures import DEFAULT_SIGNATURE, TensorInfo
from pool.wire.specs import MOST_RANK
from pool.wire.tensors import DTYPE_NAMES, DTYPES, Array

SPEC, PREDICTED = message("tensorflow.serving.ModelSpec"), message("tensorflow.serving.PredictResponse")
METADATA, MAP = (message(f"tensorflow.serving.{name}") for name in ("GetModelMetadataResponse", "SignatureDefMap"))
STATUS = message("tensorflow.serving.GetModelStatusResponse")
TENSOR, PACKED = message("tensorflow.TensorProto"), message("tensorflow.PackedTensor")
SIGNATURES = "signature_def"
KINDS = {"tensorflow/serving/classify": "classification_result", "tensorflow/serving/regress": "regression_result"}
CLASSIFY, REGRESS = KINDS
LISTS = {"float32": "float", "float64": "double", "complex64": "scomplex", "complex128": "dcomplex"} | {
    **dict.fromkeys(("float16", "bfloat16"), "half"),
    **dict.fromkeys((name for name in DTYPES if name.startswith("float8")), "float8"),
    **dict.fromkeys(("int8", "int16", "int32", "uint8", "uint16", "int4", "uint4", "int2", "uint2"), "int"),
    **{name: name for name in ("bool", "string", "int64", "uint32", "uint64")},
}
"""By dtype, a TensorProto's list of elements, without its _val."""
_NUMBERS = TENSOR.DESCRIPTOR.fields_by_name["dtype"].enum_type.values_by_name
NUMBER_OF = {name: _NUMBERS[DATA_TYPES.get(name) or f"DT_{name.upper()}"].number for name in LISTS}
DTYPE_OF = {number: name for name, number in NUMBER_OF.items()}


class Predictions:
    NAME = "tensorflow.serving.PredictionService"

    def __init__(self, door: Door) -> None:
        self._door, self._most = door, door.settings.max_body

    async def predict(self, request: Any, context: Any) -> Any:
        spec = request.model_spec
        inputs = await aside(request.ByteSize() > SLOW_BYTES, inputs_of, request, self._most)
        options: Options = {**options_of(spec, context), "outputs": [*request.output_filter] or None}
        try:
            result = await self._door.run("serving", spec.name, inputs, **options)
            outputs = dict(result)
        except InvalidInput:  # TensorFlow Serving feeds any shape: for inputs of [?, 1] its pages send [?], and get [?]
            info = signature_of(await self._door.record(spec.name, version_of(spec)), spec.signature_name)
            shapes = {name: array.ndim + 1 for name, array in inputs.items() if array.ndim and name in info.inputs}
            lifted = [name for name, rank in shapes.items() if is_narrow(info.inputs[name], rank)]
            if not lifted:
                raise
            inputs |= {name: inputs[name][..., None] for name in lifted}
            result = await self._door.run("serving", spec.name, inputs, **options)
            outputs = {n: each[..., 0] if is_narrow(info.outputs[n], each.ndim) else each for n, each in result.items()}
        is_slow = sum(array.nbytes for array in outputs.values()) > SLOW_BYTES
        return await aside(is_slow, predicted, said(spec, result.version), outputs)

    async def classify(self, request: Any, context: Any, method: str = CLASSIFY) -> Any:
        spec, result = await self._judged(method, request.model_spec, request.input, context)
        return {"model_spec": spec, "result": result}

    async def regress(self, request: Any, context: Any) -> Any:
        return await self.classify(request, context, REGRESS)

    async def multi_inference(self, request: Any, context: Any) -> Any:
        specs, results = [each.model_spec for each in request.tasks], []
        if len({each.name for each in specs}) != 1 or len({each.signature_name for each in specs}) != len(specs):
            raise InvalidInput("the tasks must be of one model, and of different signatures")
        for each in request.tasks:
            if each.method_name not in KINDS:
                raise InvalidInput(f"method_name is {each.method_name!r:.80}; give {CLASSIFY} or {REGRESS}")
            spec, result = await self._judged(each.method_name, each.model_spec, request.input, context)
            results.append({"model_spec": spec, KINDS[each.method_name]: result})
        return {"results": results}

    async def _judged(self, method: str, spec: Any, given: Any, context: Any) -> tuple[Any, Any]:
        """Which model has answered, and a result of classify or regress, as JSON has them."""
        examples = await aside(given.ByteSize() > SLOW_BYTES, examples_of, given)
        info = signature_of(await self._door.record(spec.name, version_of(spec)), spec.signature_name)
        outputs = outputs_of(method.rpartition("/")[2], spec.signature_name or DEFAULT_SIGNATURE, info)
        options: Options = {**options_of(spec, context), "outputs": outputs}
        result = await self._door.run("serving", spec.name, {"inputs": examples}, **options)
        judge = classification if method == CLASSIFY else regression
        return said(spec, result.version), await aside(len(examples) > SLOW_BYTES, judge, result, len(examples))

    async def get_model_metadata(self, request: Any, _: Any) -> Any:
        if [*request.metadata_field] != [SIGNATURES]:
            raise InvalidInput(f"metadata_field is {[*request.metadata_field]!r:.80}; give {SIGNATURES!r} alone")
        name = request.model_spec.name
        told = metadata(name, await self._door.record(name, version_of(request.model_spec)))
        answer = METADATA(model_spec=said(request.model_spec, told["model_spec"]["version"]))
        answer.metadata[SIGNATURES].Pack(ParseDict(told["metadata"][SIGNATURES], MAP()))
        return answer


class Models:
    NAME = "tensorflow.serving.ModelService"

    def __init__(self, door: Door) -> None:
        self._door = door

    async def get_model_status(self, request: Any, _: Any) -> Any:
        spec, version = request.model_spec, version_of(request.model_spec)
        if spec.version_label:
            version = number_of((await self._door.record(spec.name, version))["version"])
        return ParseDict(states(spec.name, version, await self._door.client.status()), STATUS())


def version_of(spec: Any) -> str | None:
    """A number or a label."""
    return str(spec.version.value) if spec.HasField("version") else spec.version_label or None


def options_of(spec: Any, context: Any) -> Options:
    return {"signature": spec.signature_name or None, "version": version_of(spec), "timeout": within(context, None)}


def said(spec: Any, version: str) -> Any:
    signature = spec.signature_name or DEFAULT_SIGNATURE
    return SPEC(name=spec.name, signature_name=signature, version={"value": int(number_of(version))})


def inputs_of(request: Any, most: int) -> dict[str, Array]:
    """Of so many bytes at most each, whatever they say. Raises `InvalidInput`."""
    return {name: array_of(name, tensor, most) for name, tensor in request.inputs.items()}


def array_of(name: str, tensor: Any, most: int) -> Array:
    shape = tuple([each.size for each in tensor.tensor_shape.dim])
    dtype = DTYPE_OF.get(tensor.dtype)
    if dtype is None or tensor.tensor_shape.unknown_rank or len(shape) > MOST_RANK or min(shape, default=0) < 0:
        raise InvalidInput(f"input {name!r:.80}: no tensor of dtype {tensor.dtype} and shape {shape!r:.80} is taken")
    info, count, content = TensorInfo(dtype, shape), math.prod(shape), tensor.tensor_content
    if count * DTYPES[dtype].itemsize > most:
        raise InvalidInput(f"input {name!r:.80}: {info} has more than the {most} bytes that are taken")
    if content and dtype != "string":
        return unpacked(f"input {name!r:.80}", info, content, 0, len(content))
    try:
        values = listed(name, tensor, dtype)
        if len(values) > count:
            raise ValueError(f"got {len(values)} elements")
        if len(values) < count:  # the last one stands for the rest, and zero for all
            last = values[-1] if len(values) else b"" if dtype == "string" else 0
            values = np.concatenate([values, np.full(count - len(values), last, DTYPES[dtype])])
        return values.reshape(shape)
    except ValueError as error:
        raise (
            error if isinstance(error, InvalidInput) else InvalidInput(f"input {name!r:.80}: {info}: {error}")
        ) from None


def listed(name: str, tensor: Any, dtype: str) -> Array:
    field = f"{LISTS[dtype]}_val"
    if field in PACKED.DESCRIPTOR.fields_by_name:
        return np.frombuffer(getattr(PACKED.FromString(tensor.SerializeToString()), field), DTYPES[dtype])
    values = np.array([*getattr(tensor, field)], object if dtype == "string" else None)
    if field == "half_val":  # the bits of each
        return converted(name, values, TensorInfo("uint16", None)).view(DTYPES[dtype])
    return converted(name, values, TensorInfo(dtype, None))


def predicted(spec: Any, outputs: Mapping[str, Array]) -> Any:
    """Raises `InvalidInput` for what a TensorProto cannot say."""
    answer = PREDICTED(model_spec=spec)
    for name, array in outputs.items():
        tensor, dtype = answer.outputs[name], DTYPE_NAMES[array.dtype]
        if dtype not in LISTS:
            raise InvalidInput(f"output {name!r:.80} is {dtype}, which is not answered here; leave it out")
        field, tensor.dtype = f"{LISTS[dtype]}_val", NUMBER_OF[dtype]
        for axis in array.shape:
            tensor.tensor_shape.dim.add(size=axis)
        if field in PACKED.DESCRIPTOR.fields_by_name:
            tensor.MergeFromString(PACKED(**{field: array.tobytes()}).SerializeToString())
        else:
            values = array.view(np.uint16) if field == "half_val" else array
            getattr(tensor, field).extend(values.ravel().tolist())
    return answer


def examples_of(given: Any) -> Array:
    """Serialized. Two in a row are one with the features of both, of which the later count: the context comes first."""
    kind = given.WhichOneof("kind")
    examples = [each.SerializeToString() for each in getattr(given, kind).examples] if kind else []
    if not examples:
        raise InvalidInput("the input has no examples; give one or more")
    context = given.example_list_with_context.context.SerializeToString()
    return np.array([context + each for each in examples], object)


def classification(result: Mapping[str, Array], count: int) -> Any:
    labels, scores = (array.tolist() for array in classified(result, count))
    pairs = [zip(*row, strict=True) for row in zip(labels, scores, strict=True)]
    classes = [[{"label": label.decode("utf-8", "replace"), "score": score} for label, score in row] for row in pairs]
    return {"classifications": [{"classes": row} for row in classes]}


def regression(result: Mapping[str, Array], count: int) -> Any:
    return {"regressions": [{"value": value} for value in regressed(result, count).tolist()]}
