"""TensorFlow Serving's REST API.

Rows come as {"instances": [row, …]}, whole inputs as {"inputs": …}, and examples as {"examples": […], "context": …}.
Two serialized examples in a row are one with the features of both, of which the later count: a context comes first.
"""

import binascii
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount
from starlette.types import Receive, Scope, Send

from pool.client.inputs import Options, converted
from pool.door.door import MOST_JSON_BYTES, SLOW_BYTES, Door, Refused, aside, json_of, number_of
from pool.door.http import packed, read
from pool.door.inference import member, signature_of
from pool.door.protos import message
from pool.errors import InvalidInput, ModelNotFound
from pool.wire.records import ModelRecord
from pool.wire.signatures import Signature, TensorInfo
from pool.wire.tensors import DTYPE_NAMES, Array

PATH = re.compile(
    r"/v1/models/(?P<model>[^/:]+)(/versions/(?P<number>[0-9]+)|/labels/(?P<label>[^/:]+))?"
    r"(:(?P<method>predict|classify|regress)|(?P<metadata>/metadata))?"
)
HUGE = re.compile(rb"(?<![0-9])[0-9]{300}|[eE]\+?[0-9]{3}")  # in what may have a number beyond a double
TYPES: Mapping[str, set[type]] = {"string": {str, dict}, "bool": {bool}}  # JSON's for an input; else int and float
DATA_TYPES = {"float32": "DT_FLOAT", "float64": "DT_DOUBLE", "float16": "DT_HALF"}  # others have their own name
STATES = {"READY": "AVAILABLE", "DRAINING": "UNLOADING", "STOPPING": "UNLOADING", "FATAL": "END"}  # of slots
BEST = ("AVAILABLE", "LOADING", "UNLOADING", "END")
EXAMPLE, FEATURE = message("tensorflow.Example"), message("tensorflow.Feature")

# A job's inputs and options, and what makes JSON's values of its result.
Call = tuple[Mapping[str, Array], Options, Callable[[Mapping[str, Array]], Any]]


def routes(door: Door) -> list[Mount]:
    return [Mount("/v1", partial(serve, door))]  # whatever the verb: TensorFlow Serving has words of its own for it


async def serve(door: Door, scope: Scope, receive: Receive, send: Send) -> None:
    request = Request(scope, receive)
    nbytes, answer = await answered(door, request)
    content = await aside(nbytes > SLOW_BYTES, lambda: json.dumps(answer(), ensure_ascii=False, separators=(",", ":")))
    response = Response(content, media_type="application/json")
    await (await aside(nbytes > SLOW_BYTES, packed, request, response))(scope, receive, send)


async def answered(door: Door, request: Request) -> tuple[int, Callable[[], Any]]:
    """How much is to be written, and what makes JSON's values of it."""
    verb, path = request.method, request.scope["path"]
    found = PATH.fullmatch(path)
    if found is None or verb != ("POST" if found["method"] else "GET"):
        is_nameless = (verb, path) == ("GET", "/v1/models")
        text = "Missing model name in request." if is_nameless else f"Malformed request: {verb} {path:.1000}"
        raise Refused(400, text)
    model, version = found["model"], found["label"]
    if found["number"]:
        version = found["number"].lstrip("0") or "0"
        if len(version) > 19 or int(version) >= 1 << 63:
            raise Refused(400, f"Failed to convert version: {version:.40} to numeric.")
    if found["method"]:
        body = await read(request.scope, request.receive, door)
        record = await door.record(model, version)
        inputs, options, answer = await aside(len(body) > SLOW_BYTES, prepared, found["method"], body, record)
        result = await door.run("serving", model, inputs, version=version, **options)
        return sum(array.nbytes for array in result.values()), partial(answer, result)
    if found["metadata"]:
        return 0, partial(metadata, model, await door.record(model, version))
    told = await states(door, model, version)
    return 0, lambda: told


def prepared(method: str, body: bytearray, record: ModelRecord) -> Call:
    """A job. Raises `InvalidInput`."""
    asked = json_of(body, parse_float=finite if HUGE.search(body) else None)
    name = member("the body", asked, "signature_name", str, "")
    info = signature_of(record, name)
    if method == "predict":
        return predict(asked, name, info)
    outputs, found = outputs_of(method, name, info), asked.get("examples")
    if type(found) is not list or not found:
        raise InvalidInput("'examples' must be a list with one object or more")
    context = example(asked.get("context", {}))
    examples = joined(context, [*map(example, found)])
    return {"inputs": examples}, {"signature": name, "outputs": outputs}, partial(results, count=len(found))


def predict(asked: Mapping[str, Any], name: str, info: Signature) -> Call:
    """What else the objects have counts for nothing."""
    is_rows = "instances" in asked
    given: Any = asked["instances"] if is_rows else asked.get("inputs")
    if is_rows == ("inputs" in asked) or (is_rows and (type(given) is not list or not given)):
        raise InvalidInput("give either 'instances', a list of one row or more, or 'inputs', an object of whole inputs")
    if is_rows and is_object(given[0]):
        if any(type(row) is not dict or row.keys() != given[0].keys() for row in given):
            raise InvalidInput("'instances' must be objects of the same names, or lists and values alone")
        given = {each: [row[each] for row in given] for each in given[0]}
    if not is_object(given):
        names = [each for each in info.inputs if each not in info.defaults] or [*info.inputs]
        if len(names) != 1:
            raise InvalidInput(f"give objects: the signature has the inputs {', '.join(names) or '(none)'}")
        given = {names[0]: given}
    arrays = {each: tensor(each, given[each], wanted) for each, wanted in info.inputs.items() if each in given}
    # TensorFlow Serving feeds any shape: its half_plus_two declares [?, 1], where its pages send [?], and get [?].
    lifted = {each for each, array in arrays.items() if array.ndim and is_narrow(info.inputs[each], array.ndim + 1)}
    inputs = {each: array[..., None] if each in lifted else array for each, array in arrays.items()}
    return inputs, {"signature": name}, partial(predictions, info=info, is_rows=is_rows, is_lifted=bool(lifted))


def joined(context: bytes, examples: list[bytes]) -> Array:
    """Two serialized ones in a row are one with the features of both, of which the later count."""
    if len(context) * len(examples) > MOST_JSON_BYTES:
        raise InvalidInput(f"{len(examples)} examples are too many for a context of {len(context)} bytes; send fewer")
    return np.array([context + each for each in examples], object)


def is_object(value: Any) -> bool:
    return type(value) is dict and not is_binary(value)


def is_narrow(info: TensorInfo, rank: int) -> bool:
    return info.shape is not None and len(info.shape) == rank > 1 and info.shape[-1] == 1


def tensor(name: str, value: Any, wanted: TensorInfo) -> Array:
    array = np.array(value, object)
    elements = array.ravel().tolist()
    types = set(map(type, elements))
    if not types <= TYPES.get(wanted.dtype, {int, float}):
        raise InvalidInput(f"input {name!r}: expected {wanted}, got {', '.join(each.__name__ for each in types)}")
    if wanted.dtype == "string":
        return np.array([to_bytes(each) for each in elements], object).reshape(array.shape)
    is_whole = "int" in wanted.dtype and float not in types
    dtype = bool if bool in types else float if not is_whole else np.uint64 if wanted.dtype == "uint64" else np.int64
    try:
        return converted(name, array.astype(dtype), wanted)
    except OverflowError as error:
        raise InvalidInput(f"input {name!r}: expected {wanted}: {error}") from None


def results(found: Mapping[str, Array], count: int) -> Any:
    if "outputs" in found:
        return {"results": values("", regressed(found, count))}
    labels, scores = (values("", array) for array in classified(found, count))
    return {"results": [[*zip(*pair, strict=True)] for pair in zip(labels, scores, strict=True)]}


def predictions(found: Mapping[str, Array], info: Signature, is_rows: bool, is_lifted: bool) -> Any:
    if is_lifted:
        found = {n: array[..., 0] if is_narrow(info.outputs[n], array.ndim) else array for n, array in found.items()}
    columns = {name: values(name, array) for name, array in found.items()}
    whole = columns if len(columns) > 1 else next(iter(columns.values()))
    if not is_rows:
        return {"outputs": whole}
    heights = {array.shape[:1] for array in found.values()}
    if len(heights) > 1 or () in heights:
        raise InvalidInput("the outputs have no rows in common; give 'inputs' in place of 'instances'")
    if whole is columns:
        whole = [{name: column[row] for name, column in columns.items()} for row in range(*heights.pop())]
    return {"predictions": whole}


def values(name: str, array: Array) -> Any:
    """As nested lists. Raises `Refused`."""
    dtype = DTYPE_NAMES[array.dtype]
    if dtype == "string":
        made = [text(each, name.endswith("_bytes")) for each in array.ravel().tolist()]
        array = np.array(made, object).reshape(array.shape)
    elif "complex" in dtype:
        raise Refused(501, f"output {name!r:.80}: JSON has no form for {dtype}")
    elif "float" in dtype and dtype != "float64":  # by the fewest digits: 0.1, not 0.10000000149011612
        array = array.astype(np.float32).astype(str).astype(np.float64)
    return array.tolist()


def text(value: bytes, is_bytes: bool) -> Any:
    try:
        return {"b64": binascii.b2a_base64(value, newline=False).decode()} if is_bytes else value.decode()
    except UnicodeDecodeError:
        return text(value, True)


def finite(number: str) -> float:
    if np.isinf(value := float(number)):
        raise ValueError(f"the number {number:.40} is too large")
    return value


def metadata(model: str, record: Mapping[str, Any]) -> Any:
    def told(dtype: str, shape: Sequence[int] | None) -> Any:
        axes = {"dim": [{"size": str(axis), "name": ""} for axis in shape or ()], "unknown_rank": shape is None}
        return {"dtype": DATA_TYPES.get(dtype) or f"DT_{dtype.upper()}", "tensor_shape": axes, "name": ""}

    signatures: dict[str, Any] = {}
    for name, each in record["signatures"].items():
        signatures[name] = {"method_name": "tensorflow/serving/predict", "defaults": {}}
        for side in ("inputs", "outputs"):
            signatures[name][side] = {tensor: told(*info) for tensor, info in each[side].items()}
    spec = {"name": model, "signature_name": "", "version": number_of(record["version"])}
    return {"model_spec": spec, "metadata": {"signature_def": {"signature_def": signatures}}}


async def states(door: Door, model: str, version: str | None) -> dict[str, Any]:
    """Of each version, or of one, what the best slot says. Raises `PoolError`."""
    if version is not None and not version.isdecimal():  # a label
        version = number_of((await door.record(model, version))["version"])
    best: dict[str, tuple[int, str]] = {}
    for slot in (await door.client.status())["slots"]:
        for name, (text, _) in slot["versions"].items():
            number = number_of(text)
            state = "END" if name in slot["failed"] else STATES.get(slot["state"], "LOADING")
            said = BEST.index(state), slot["failed"].get(name, slot["why"])
            if name.partition("@")[0] == model and version in (None, number):
                best[number] = min(said, best.get(number, said))
    if not best:
        which = "any versions" if version is None else f"version {version}"
        raise ModelNotFound(f"Could not find {which} of model {model:.80}")
    told = []
    for number, (rank, why) in sorted(best.items(), key=lambda each: -int(each[0])):
        health = {"error_code": "UNKNOWN" if why else "OK", "error_message": why}
        told.append({"version": number, "state": BEST[rank], "status": health})
    return {"model_version_status": told}


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
