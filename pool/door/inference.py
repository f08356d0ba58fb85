"""The Open Inference Protocol over HTTP, with Triton's binary tensors.

A job's body is JSON, behind which the inputs that have a `binary_data_size` follow as bytes, in their order. Where the
JSON ends, the header Inference-Header-Content-Length says; without it, all is JSON.
"""

import gzip
import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from pool import Result
from pool.client.inputs import Options, chosen, converted, requested, signatures_of
from pool.door.door import SLOW_BYTES, Door, Refused, aside, json_of, number_of
from pool.door.http import GZIP_FROM, read
from pool.errors import InvalidInput
from pool.wire import RELEASE
from pool.wire.datatypes import DATATYPE_OF, arrays_of, described, encoded, tensor_info
from pool.wire.records import ModelRecord, Status
from pool.wire.signatures import Signature, TensorInfo
from pool.wire.tensors import Array

HEAD_BYTES = b"inference-header-content-length"
MOST_KNOWN, MOST_KNOWN_BYTES = 256, 4096  # JSON that clients send again and again
SLOW_ELEMENTS = 50_000  # more of them one by one would hold the loop up
COPIED_BYTES = 64 << 10  # below that a copy costs less than one more message
JOB = re.compile(r"/v2/models/(?P<model>[^/]+)(/versions/(?P<version>[^/]+))?/infer")
ID = re.compile(rb'\{("id":"[ !#-\[\]-~]*",)(?=")')  # as tritonclient writes it
EXTENSIONS = ["binary_tensor_data", "model_configuration", "model_repository", "parameters", "statistics"]
SERVER = {"name": "tf-worker-pool", "version": RELEASE, "extensions": EXTENSIONS}
NOT_BUILT = ("sharedmemory", "trace", "logging", "generate", "unload", "load")
PLATFORM = "tensorflow_savedmodel"
UNCOUNTED = ("queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss")
KINDS = {bool: "true or false", int: "a whole number", str: "a text", list: "a list", dict: "a JSON object"}
Kind = TypeVar("Kind", bool, int, str, list[Any], dict[str, Any])


def routes(door: Door) -> list[Route]:
    async def ready(_: Request) -> Response:
        return Response(status_code=200 if await door.is_ready() else 503)

    async def all_models(request: Request) -> Response:
        models = await door.client.models()
        is_index = request.url.path.endswith("index")
        return JSONResponse(index(models) if is_index else statistics(await door.client.status(), models))

    async def about_model(request: Request) -> Response:
        record, signature = await door.record(*place(request.scope)), request.query_params.get("signature", "")
        match request.scope["route"].name:
            case "/config":
                return JSONResponse(config(record, signature))
            case "/stats":
                return JSONResponse(statistics(await door.client.status(), [record]))
            case "/ready":
                return Response()
        return JSONResponse(metadata(record, await door.client.models(), signature))

    not_built = [(each, JSONResponse({"error": f"this door has no {each}"}, 501)) for each in NOT_BUILT]
    bases = ("/v2/models/{model}", "/v2/models/{model}/versions/{version}")
    return [
        Route("/v2/health/live", Response(), methods=["GET"]),
        Route("/v2/health/ready", ready),
        Route("/v2", JSONResponse(SERVER), methods=["GET"]),
        Route("/v2/models/stats", all_models),
        Route("/v2/repository/index", all_models, methods=["POST"]),
        *[Route(base + kind, about_model, name=kind) for base in bases for kind in ("", "/ready", "/config", "/stats")],
        *[Route(f"/v2/{{a:path}}{each}{{z:path}}", refusal, methods=["GET", "POST"]) for each, refusal in not_built],
    ]


def place(scope: Scope) -> tuple[str, str | None]:
    """The model and the version that a path names: a number or a label; None is the newest."""
    version = scope["path_params"].get("version")
    return scope["path_params"]["model"], None if version == "-1" else version


def member(what: str, told: object, key: str, kind: type[Kind], default: Kind | None = None) -> Kind:
    """Of an object that somebody sent. Raises `InvalidInput`."""
    if not isinstance(told, dict):
        raise InvalidInput(f"{what} is {told!r:.40}; give a JSON object")
    value = told.get(key, default)
    if type(value) is not kind:
        raise InvalidInput(f"{what}: {key} is {value!r:.40}; give {KINDS[kind]}")
    return value


def options_of(parameters: dict[str, Any]) -> Options:
    """A job's options. Parameters that are not known are for models of other servers. Raises `InvalidInput`."""
    what = "the parameters"
    microseconds, level = (member(what, parameters, name, int, 0) for name in ("timeout", "priority"))
    if microseconds < 0 or level < 0:
        raise InvalidInput(f"{what}: timeout is {microseconds}, priority {level}; give 1 or more, or 0 for the default")
    if parameters.get("sequence_id", 0) not in (0, ""):
        raise InvalidInput(f"{what}: there are no sequences, for all jobs share a model's state; leave sequence_id out")
    timeout_s, priority = min(microseconds, 1 << 62) / 1e6 or None, max(-100, 101 - level) if level else 0
    signature = member(what, parameters, "signature", str, "") or None
    return Options(timeout=timeout_s, priority=priority, signature=signature)


class Asked(NamedTuple):
    """What a request's JSON asks for. Nothing of it depends on the bytes that follow, nor on the path."""

    id: str  # as a member of the answer; "": none
    options: Options
    given: dict[str, Array]
    binary: dict[str, tuple[TensorInfo, int]]  # and the bytes of each
    outputs: dict[str, bool]  # that are asked for, and whether as bytes; empty: all
    is_binary: bool  # of other outputs


@lru_cache(MOST_KNOWN)
def parsed(text: bytes) -> Asked:
    """Raises `InvalidInput` and `Refused`."""
    told = json_of(text)
    parameters = member("the request", told, "parameters", dict, {})
    is_binary = member("the parameters", parameters, "binary_data_output", bool, False)
    own_id = f'"id":{json.dumps(member("the request", told, "id", str))},' if "id" in told else ""
    asked = Asked(own_id, options_of(parameters), {}, {}, {}, is_binary)
    for each in member("the request", told, "inputs", list):
        name, what, parameters = _named("input", each)
        if name in asked.given or name in asked.binary:
            raise InvalidInput(f"{what} is given twice")
        info = tensor_info(what, member(what, each, "datatype", str), member(what, each, "shape", list))
        if "data" in each:
            asked.given[name] = _from_json(name, info, each["data"])
        else:
            asked.binary[name] = info, member(what, parameters, "binary_data_size", int)
    for each in member("the request", told, "outputs", list, []):
        name, what, parameters = _named("output", each)
        asked.outputs[name] = member(what, parameters, "binary_data", bool, asked.is_binary)
    asked.options["outputs"] = [*asked.outputs] or None
    return asked


def _named(kind: str, told: object) -> tuple[str, str, dict[str, Any]]:
    name = member(f"an {kind}", told, "name", str)
    what = f"{kind} {name!r:.80}"
    parameters = member(what, told, "parameters", dict, {})
    for extension in ("shared_memory_region", "classification"):
        if parameters.get(extension):
            raise Refused(501, f"{what}: this door has no {extension}")
    return name, what, parameters


def _from_json(name: str, info: TensorInfo, data: object) -> Array:
    try:
        array = np.array(data, object)  # otherwise numpy would give each element the room of the longest text
        kinds = set(map(type, array.ravel().tolist()))
        if kinds - {str} if info.dtype == "string" else kinds & {str, list}:
            raise ValueError(f"expected {info}, got other elements, or lists of several lengths")
        return converted(name, array, info).reshape(info.shape or ())
    except ValueError as error:
        raise error if isinstance(error, InvalidInput) else InvalidInput(f"input {name!r:.80}: {error}") from None


async def infer(door: Door, scope: Scope, receive: Receive, send: Send) -> None:
    """Runs a job."""
    headers, (model, version) = dict(scope["headers"]), place(scope)
    body = await read(scope, receive, door)
    size = headers.get(HEAD_BYTES, b"%d" % len(body))
    if not size.isdigit() or len(size) > 18 or int(size) > len(body):
        raise Refused(400, f"Inference-Header-Content-Length is {size!r:.40}; the body has {len(body)} bytes")
    if size == b"0":
        raise Refused(501, "this door takes no tensor alone; send JSON before it")
    text, own_id = bytes(memoryview(body)[: int(size)]), ""
    if found := ID.match(text):  # clients send the same again and again, but for it
        own_id, text = found[1].decode(), b"{" + text[found.end() :]
    parse = parsed if len(text) <= MOST_KNOWN_BYTES else parsed.__wrapped__
    asked: Asked = await aside(len(text) > SLOW_BYTES, parse, text)
    is_slow = len(body) > SLOW_BYTES and any(info.dtype == "string" for info, _ in asked.binary.values())
    inputs = asked.given | await aside(is_slow, arrays_of, "input", asked.binary, body, int(size))
    options: Options = {**asked.options, "version": version}
    result = await door.run("inference", model, inputs, **options)
    sent = asked.outputs or dict.fromkeys(result, asked.is_binary)
    slow = [each.size for name, each in result.items() if each.dtype.hasobject or not sent[name]]
    parts = await aside(sum(slow) > SLOW_ELEMENTS, answered, model, own_id or asked.id, sent, result)
    said = [(b"content-type", b"application/json")]
    if len(parts) > 1:
        said = [(b"content-type", b"application/octet-stream"), (HEAD_BYTES, b"%d" % len(parts[0]))]
    nbytes, accepts = sum(map(len, parts)), headers.get(b"accept-encoding", b"")
    # Many clients take gzip unasked, and it is not worth it for tensors: then it has to be all that they take.
    if nbytes >= GZIP_FROM and (accepts == b"gzip" or (b"gzip" in accepts and len(parts) == 1)):
        parts = [await aside(nbytes > SLOW_BYTES, gzip.compress, b"".join(parts), 1)]
        said.append((b"content-encoding", b"gzip"))
        nbytes = len(parts[0])
    if nbytes <= COPIED_BYTES:
        parts = [b"".join(parts)]
    said.append((b"content-length", b"%d" % nbytes))
    await send({"type": "http.response.start", "status": 200, "headers": said})
    for left, part in enumerate(parts, 1 - len(parts)):
        await send({"type": "http.response.body", "body": part, "more_body": left < 0})


def answered(model: str, own_id: str, sent: dict[str, bool], result: Result) -> list[Any]:
    """The JSON of an answer, and the tensors that follow it. Raises `InvalidInput` for what cannot be said so."""
    outputs: list[str] = []
    tensors: list[Any] = []
    for name, is_binary in sent.items():
        array = result[name]
        if is_binary:
            tensors.append(encoded(array))
            outputs.append(described(name, array.dtype, array.shape, binary_data_size=len(tensors[-1])))
            continue
        data: list[Any] = array.ravel().tolist()
        try:
            text = json.dumps([each.decode() for each in data] if array.dtype.hasobject else data)
        except UnicodeDecodeError:
            raise InvalidInput(f"output {name!r:.80} is not UTF-8; ask for it with binary_data") from None
        outputs.append(f'{described(name, array.dtype, array.shape)[:-1]},"data":{text}}}')
    head = f'{{{own_id}"model_name":{json.dumps(model)},"model_version":"{number_of(result.version)}"'
    return [f'{head},"outputs":[{",".join(outputs)}]}}'.encode(), *tensors]


def named(record: ModelRecord) -> dict[str, str]:
    """The name is without the number that it has where several versions are served."""
    return {"name": record["name"].partition("@")[0], "version": number_of(record["version"])}


def signature_of(record: ModelRecord, asked: str) -> Signature:
    """The one that a job gets. Raises `InvalidInput`."""
    return chosen(requested(record["name"], signature=asked), signatures_of(record))


def metadata(record: ModelRecord, models: Iterable[ModelRecord], signature: str = "") -> dict[str, Any]:
    info, name = signature_of(record, signature), named(record)["name"]
    versions = sorted({int(named(each)["version"]) for each in models if named(each)["name"] == name})
    told: dict[str, Any] = {"name": name, "versions": [*map(str, versions)], "platform": PLATFORM}
    for key, infos in (("inputs", info.inputs), ("outputs", info.outputs)):
        told[key] = [{"name": name, "datatype": datatype, "shape": axes} for name, datatype, axes in shown(infos)]
    return told


def config(record: ModelRecord, signature: str = "") -> dict[str, Any]:
    """As Triton would make it up. With a `max_batch_size` the `dims` are without the axis of the batch."""
    info = signature_of(record, signature)
    shapes = [each.shape for each in (*info.inputs.values(), *info.outputs.values())]
    skip = int(all(shape is not None and shape[:1] == (-1,) for shape in shapes))
    told: dict[str, Any] = {"name": named(record)["name"], "platform": PLATFORM, "backend": "tensorflow"}
    told["max_batch_size"] = info.max_batch if skip else 0
    for key, infos in (("input", info.inputs), ("output", info.outputs)):
        typed = [(name, datatype.replace("BYTES", "STRING"), axes[skip:]) for name, datatype, axes in shown(infos)]
        told[key] = [{"name": name, "data_type": f"TYPE_{kind}", "dims": axes} for name, kind, axes in typed]
    return told


def shown(infos: Mapping[str, TensorInfo]) -> list[tuple[str, str, list[int]]]:
    """What the protocol has no word for: a datatype is shown, and never sent; any shape is [-1]."""
    axes = {name: [-1] if info.shape is None else list(info.shape) for name, info in infos.items()}
    return [(name, DATATYPE_OF.get(info.dtype, info.dtype.upper()), axes[name]) for name, info in infos.items()]


def index(models: Iterable[ModelRecord]) -> list[dict[str, str]]:
    states = [(each, "READY" if each["slots"] else "UNAVAILABLE" if each["why"] else "LOADING") for each in models]
    return [{**named(each), "state": state, "reason": each["why"]} for each, state in states]


def statistics(status: Status, models: Iterable[ModelRecord]) -> dict[str, Any]:
    """Of these models. What the pool does not count is 0, such as the times; an execution is a job."""
    counted, told = {each["name"]: (each["done"], each["failed"]) for each in status["models"]}, []
    for each in models:
        done, failed = counted.get(each["name"], (0, 0))
        counts = {"success": done, "fail": failed, **dict.fromkeys(UNCOUNTED, 0)}
        times = {key: {"count": count, "ns": 0} for key, count in counts.items()}
        told.append({**named(each), "inference_count": done, "execution_count": done, "inference_stats": times})
    return {"model_stats": told}
