"""What the protocol tells of a model: its metadata, its configuration as Triton has it, its place in the index."""

from collections.abc import Sequence
from typing import Any

from pool.gateway.catalogue import numbers
from pool.gateway.http import Refused
from pool.gateway.inference.datatypes import config_name, shown
from pool.wire.records import Model, SignatureInfo, Tensor
from pool.wire.signatures import DEFAULT_SIGNATURE

__all__ = ["config", "has_rows", "index", "metadata", "signature_of"]

PLATFORM = "tensorflow_savedmodel"
BACKEND = "tensorflow"


def version_of(model: Model) -> str:
    return str(numbers(model)[-1])


def metadata(versions: Sequence[Model], model: Model, signature: str | None) -> dict[str, Any]:
    """`versions`: of those beside each other, all. `signature`: what is asked for. Raises `Refused`."""
    _, info = signature_of(model, signature)
    served = sorted({number for each in versions for number in numbers(each)})
    return {
        "name": model.model,
        "versions": [str(number) for number in served],
        "platform": PLATFORM,
        "inputs": _tensors(info.inputs.items()),
        "outputs": _tensors(info.outputs.items()),
    }


def _tensors(specs: Any) -> list[dict[str, Any]]:
    return [{"name": name, "datatype": shown(spec.dtype), "shape": _shape(spec)} for name, spec in specs]


def _shape(spec: Tensor) -> list[int]:
    """-1 is any length; of any rank, too, for which the protocol has no word."""
    return [-1] if spec.shape is None else list(spec.shape)


def config(model: Model, signature: str | None) -> dict[str, Any]:
    """With a `max_batch_size` the `dims` are without the axis of the batch. Raises `Refused`."""
    name, info = signature_of(model, signature)
    batched = has_rows(info)
    found = {
        "name": model.model,
        "platform": PLATFORM,
        "backend": BACKEND,
        "version_policy": {"specific": {"versions": list(numbers(model))}},
        "max_batch_size": model.scheduling.max_batch if batched else 0,
        "input": [
            {**_dims(key, spec, batched), "format": "FORMAT_NONE", "optional": False}
            for key, spec in info.inputs.items()
        ],
        "output": [{**_dims(key, spec, batched), "label_filename": ""} for key, spec in info.outputs.items()],
        "instance_group": [{"name": model.name, "kind": "KIND_AUTO", "count": max(1, len(model.slots))}],
        "default_model_filename": "",
        "parameters": {"TF_SIGNATURE_DEF": {"string_value": name}},
    }
    return {**found, "dynamic_batching": {}} if batched and info.batchable else found


def has_rows(info: SignatureInfo) -> bool:
    """As Triton finds out what is a batch. Whether jobs are joined now may be otherwise a second later."""
    shapes = [spec.shape for spec in (*info.inputs.values(), *info.outputs.values())]
    return bool(info.inputs) and all(shape is not None and shape[:1] == (-1,) for shape in shapes)


def _dims(name: str, spec: Tensor, batched: bool) -> dict[str, Any]:
    dims = _shape(spec)[1:] if batched else _shape(spec)
    return {"name": name, "data_type": config_name(spec.dtype), "dims": dims, "is_shape_tensor": False}


def signature_of(model: Model, asked: str | None) -> tuple[str, SignatureInfo]:
    """The one that a job gets: what it asks for, else the default one, else the only one."""
    signatures = model.signatures
    if not signatures:
        raise Refused(503, f"model {model.name!r:.200} is not loaded yet", 1.0)
    there = ", ".join(sorted(signatures))
    if asked is not None and asked not in signatures:
        raise Refused(404, f"model {model.name!r:.200} has no signature {asked!r:.80}; it has {there:.400}")
    name = asked or (next(iter(signatures)) if len(signatures) == 1 else DEFAULT_SIGNATURE)
    if name not in signatures:
        raise Refused(400, f"model {model.name!r:.200} has no default signature; add ?signature=NAME, of {there:.400}")
    return name, signatures[name]


def index(models: Sequence[Model], *, only_ready: bool) -> list[dict[str, str]]:
    found: dict[tuple[str, str], dict[str, str]] = {}
    for model in models:
        state, reason = _state(model)
        key = model.model, version_of(model)
        # A pool may have a number alone that another pool has beside others.
        if (state == "READY" or not only_ready) and (key not in found or state == "READY"):
            found[key] = {"name": model.model, "version": version_of(model), "state": state, "reason": reason}
    return list(found.values())


def _state(model: Model) -> tuple[str, str]:
    if model.ready_slots:
        return "READY", ""
    if not model.slots:
        return "UNAVAILABLE", "no slot has it"
    if model.scheduling.leaving:
        return "UNLOADING", "it takes no jobs any more"
    return "LOADING", f"no slot that has it is READY: {', '.join(map(str, model.slots))}"
