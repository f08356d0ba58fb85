"""The signatures that a model declares, as far as they can be offered."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pool.wire.signatures import Signature, TensorSpec
from pool.wire.tensors import DTYPES
from workers.backend import CannotLoad
from workers.tf.library import TensorInfo, TypeSpecProto, tf

__all__ = ["BoundSignature", "bind"]

logger = logging.getLogger("workers.tf")

_RAGGED = TypeSpecProto.RAGGED_TENSOR_SPEC
_NOT_FOR_CALLERS = frozenset({"__saved_model_init_op", "__saved_model_train_op"})


class _NotOfferedError(Exception):
    """Why a signature is left out."""


@dataclass(frozen=True, slots=True)
class BoundSignature:
    """A signature and the tensors of the graph that its names stand for."""

    signature: Signature
    feeds: Mapping[str, str]
    fetches: Mapping[str, str]


def bind(
    model: str, signature_defs: Mapping[str, Any], graph: Any, composite: Mapping[str, Mapping[str, str]]
) -> tuple[dict[str, BoundSignature], dict[str, str]]:
    """All signatures that can be offered, in the order of their names; and of each other one, why it cannot.

    `composite`: those with ragged or sparse tensors that their definitions do not show; see `composites`.
    One with a tensor that cannot travel (a resource, a variant) is left out with a warning. Raises
    `CannotLoad` if a name stands for no tensor of the graph, or if nothing is left.
    """
    bound: dict[str, BoundSignature] = {}
    left_out: dict[str, str] = {}
    for name in sorted(signature_defs):
        definition = signature_defs[name]
        if name in _NOT_FOR_CALLERS:
            continue
        if not definition.outputs:
            left_out[name] = "it declares no outputs"
            continue
        try:
            inputs, feeds = _specs(model, definition.inputs, graph, f"input of signature {name!r}")
            outputs, fetches = _specs(model, definition.outputs, graph, f"output of signature {name!r}")
        except _NotOfferedError as reason:
            left_out[name] = str(reason)
            logger.warning("model %s: signature %r is not served: %s", model, name, reason)
        else:
            method = str(definition.method_name)
            bound[name] = BoundSignature(
                Signature(inputs, outputs, name in composite, composite.get(name, {}), method), feeds, fetches
            )
    if not bound:
        why = (
            "; ".join(f"{name!r}: {each}" for name, each in left_out.items())
            or "it declares none; save it with signatures="
        )
        raise CannotLoad(f"model {model}: no signature can be served: {why}")
    return bound, left_out


def _specs(model: str, infos: Mapping[str, Any], graph: Any, what: str) -> tuple[dict[str, TensorSpec], dict[str, str]]:
    specs: dict[str, TensorSpec] = {}
    tensors: dict[str, str] = {}
    for name in sorted(infos):
        for part, info, shape in _parts(name, infos[name], f"{what}, {name!r},"):
            declared = tf.dtypes.as_dtype(info.dtype).base_dtype.name
            if declared not in DTYPES:
                raise _NotOfferedError(f"{what}, {part!r}, has dtype {declared}, which cannot be sent")
            if part in specs:
                raise _NotOfferedError(f"{what}, {part!r}, exists twice: once as a part of {name!r}")
            tensor = _tensor_of(graph, info.name, f"{what}, {part!r}")
            dtype = tensor.dtype.base_dtype.name
            if dtype != declared:
                text = "model %s: %s, %r, is declared as %s but is %s in its graph; the graph counts"
                logger.warning(text, model, what, part, declared, dtype)
            if dtype not in DTYPES:
                raise _NotOfferedError(f"{what}, {part!r}, has dtype {dtype}, which cannot be sent")
            specs[part] = TensorSpec(dtype, shape, str(tensor.name))
            tensors[part] = str(tensor.name)
    return specs, tensors


def _parts(name: str, info: Any, what: str) -> Iterator[tuple[str, Any, tuple[int, ...] | None]]:
    """The tensors that it is made of: one, or those of a ragged or sparse tensor, each with a name of its own.

    Their shapes are said to be unknown: axis 0 of none of them counts the rows, so they are never joined or cut.
    """
    match info.WhichOneof("encoding"):
        case "name":
            yield name, info, _shape(info.tensor_shape)
        case "composite_tensor" if info.composite_tensor.type_spec.type_spec_class == _RAGGED:
            values, *splits = info.composite_tensor.components
            yield f"{name}.flat_values", values, None
            for dimension, each in enumerate(splits):
                yield f"{name}.row_splits_{dimension}", each, None
        case "coo_sparse":
            sparse, index = info.coo_sparse, tf.int64.as_datatype_enum
            yield f"{name}.indices", TensorInfo(name=sparse.indices_tensor_name, dtype=index), None
            yield f"{name}.values", TensorInfo(name=sparse.values_tensor_name, dtype=info.dtype), None
            yield f"{name}.dense_shape", TensorInfo(name=sparse.dense_shape_tensor_name, dtype=index), None
        case _:
            raise _NotOfferedError(f"{what} is not a dense, ragged or sparse tensor")


def _shape(proto: Any) -> tuple[int, ...] | None:
    return None if proto.unknown_rank else tuple(axis.size if axis.size >= 0 else -1 for axis in proto.dim)


def _tensor_of(graph: Any, name: str, what: str) -> Any:
    try:
        return graph.as_graph_element(name, allow_tensor=True, allow_operation=False)
    except (KeyError, ValueError, TypeError):
        raise CannotLoad(f"the {what}, names {name!r}, which is not a tensor of its graph") from None
