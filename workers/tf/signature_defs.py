"""The signatures that a model declares, as far as they can be offered."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pool.wire.signatures import Signature, TensorInfo
from pool.wire.tensors import DTYPES, Array
from workers.backend import CannotLoad
from workers.tf.files import Source
from workers.tf.graph import Reachable, tensor_named
from workers.tf.library import tf

_NOT_FOR_CALLERS = frozenset({"__saved_model_init_op", "__saved_model_train_op"})


class _NotOffered(Exception):
    """Why a signature is left out."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A signature, and the tensors of the graph that its names stand for."""

    signature: Signature
    feeds: Mapping[str, str]
    fetches: Mapping[str, str]
    defaults: Mapping[str, Array]  # what is fed for an input that is left out. The graph itself has the other defaults.
    has_parts: bool  # some are parts of ragged or sparse tensors, whose axes 0 have sizes of their own
    ops: Collection[str]  # the types of all ops that a run may run


def bind(source: Source, graph: Any, reachable: Reachable) -> tuple[Mapping[str, Bound], Mapping[str, str]]:
    """The signatures that can be offered, in the order of their names; and of each other one, why it cannot.

    Raises `CannotLoad` if a name stands for no tensor of the graph, or if nothing is left.
    """
    bound: dict[str, Bound] = {}
    left_out: dict[str, str] = {}
    definitions = source.signature_defs(graph, reachable)
    for name in sorted(set(definitions) - _NOT_FOR_CALLERS):
        try:
            bound[name] = _bound(definitions[name], graph, reachable, name, source)
        except _NotOffered as reason:
            left_out[name] = str(reason)
    if not bound:
        each = [f"{name!r}: {why}" for name, why in left_out.items()]
        why = "; ".join(each) or "it declares none; save it with signatures="
        raise CannotLoad(f"no signature can be served: {why}")
    return bound, left_out


def _bound(definition: Any, graph: Any, reachable: Reachable, name: str, source: Source) -> Bound:
    if not definition.outputs:
        raise _NotOffered("it declares no outputs")
    inputs, feeds = _infos(definition.inputs, graph, f"input of signature {name!r}")
    outputs, fetches = _infos(definition.outputs, graph, f"output of signature {name!r}")
    if len({*feeds.values()}) < len(feeds):
        raise _NotOffered("two of its inputs are the same tensor")
    defaults: dict[str, Array] = {}
    for key, proto in definition.defaults.items():
        if key in inputs:
            defaults[key] = np.asarray(tf.make_ndarray(proto), DTYPES[inputs[key].dtype])
    built_in = [
        key for key, tensor in feeds.items() if graph.get_tensor_by_name(tensor).op.type == "PlaceholderWithDefault"
    ]
    signature = Signature(inputs, outputs, frozenset((*defaults, *built_in)))
    infos = (*definition.inputs.values(), *definition.outputs.values())
    functions = reachable.functions(fetches.values())
    has_parts = _has_composite(source, functions) or any(info.WhichOneof("encoding") != "name" for info in infos)
    ops = reachable.ops(fetches.values(), [tensor for key, tensor in feeds.items() if key not in signature.defaults])
    return Bound(signature, feeds, fetches, defaults, has_parts, ops)


def _has_composite(source: Source, functions: Collection[str]) -> bool:
    """Whether one of these functions of TensorFlow 2 takes or gives a ragged or sparse tensor.

    Its signature shows flat tensors alone (`r` and `r_1`, both [?]), but the object graph says what they are parts of.
    """
    concrete = source.meta_graph.object_graph_def.concrete_functions
    found = [concrete[name] for name in functions if name in concrete]
    # Plain tensors have a kind of their own, at any depth.
    return any("type_spec_value" in f"{each.canonicalized_input_signature}{each.output_signature}" for each in found)


def _infos(declared: Mapping[str, Any], graph: Any, what: str) -> tuple[dict[str, TensorInfo], dict[str, str]]:
    """The dtypes are those of the graph, whatever was declared."""
    infos: dict[str, TensorInfo] = {}
    tensors: dict[str, str] = {}
    for name in sorted(declared):
        for part, tensor_name, shape in _parts(name, declared[name], f"{what}, {name!r},"):
            tensor = tensor_named(graph, tensor_name, f"the {what}, {part!r},")
            dtype = tensor.dtype.base_dtype.name
            if dtype not in DTYPES:
                raise _NotOffered(f"{what}, {part!r}, has dtype {dtype}, which cannot be sent")
            infos[part] = TensorInfo(dtype, shape)
            tensors[part] = str(tensor.name)
    return infos, tensors


def _parts(name: str, info: Any, what: str) -> Iterator[tuple[str, str, tuple[int, ...] | None]]:
    """The tensors that it is made of: one, or those of a ragged or sparse tensor, each with a name of its own."""
    match info.WhichOneof("encoding"):
        case "name":
            shape = info.tensor_shape
            yield name, info.name, None if shape.unknown_rank else tuple(max(axis.size, -1) for axis in shape.dim)
        case "composite_tensor" if (kind := info.composite_tensor.type_spec).type_spec_class == kind.RAGGED_TENSOR_SPEC:
            values, *splits = info.composite_tensor.components
            yield f"{name}.flat_values", values.name, None
            for dimension, each in enumerate(splits):
                yield f"{name}.row_splits_{dimension}", each.name, None
        case "coo_sparse":
            for part in ("indices", "values", "dense_shape"):
                yield f"{name}.{part}", getattr(info.coo_sparse, f"{part}_tensor_name"), None
        case _:
            raise _NotOffered(f"{what} is not a dense, ragged or sparse tensor")
