"""The signatures that a model declares, as far as they can be offered."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pool.wire.signatures import Signature, TensorInfo
from pool.wire.tensors import DTYPES, Array
from workers.backend import CannotLoad
from workers.tf.files import Source
from workers.tf.graph import Reachable
from workers.tf.library import TensorInfo as Info
from workers.tf.library import TypeSpecProto, tf

_RAGGED = TypeSpecProto.RAGGED_TENSOR_SPEC
_NOT_FOR_CALLERS = frozenset({"__saved_model_init_op", "__saved_model_train_op"})


class _NotOffered(Exception):
    """Why a signature is left out."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A signature, and the tensors of the graph that its names stand for."""

    signature: Signature
    feeds: Mapping[str, str]
    fetches: Mapping[str, str]
    defaults: Mapping[str, Array]
    """What is fed for an input that is left out. The graph itself has the other defaults."""
    has_parts: bool
    """Some are parts of ragged or sparse tensors, whose axes 0 have sizes of their own."""
    ops: Collection[str]
    """The types of all ops that a run may run."""


def bind(source: Source, graph: Any, reachable: Reachable) -> tuple[dict[str, Bound], dict[str, str]]:
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
    inputs, feeds = _infos(definition.inputs, graph, f"input of signature {name!r}", source)
    outputs, fetches = _infos(definition.outputs, graph, f"output of signature {name!r}", source)
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


def _infos(
    declared: Mapping[str, Any], graph: Any, what: str, source: Source
) -> tuple[dict[str, TensorInfo], dict[str, str]]:
    infos: dict[str, TensorInfo] = {}
    tensors: dict[str, str] = {}
    for name in sorted(declared):
        for part, info, shape in _parts(name, declared[name], f"{what}, {name!r},"):
            tensor = _tensor(graph, info.name, f"{what}, {part!r}")
            dtype = tensor.dtype.base_dtype.name
            if dtype not in DTYPES:
                raise _NotOffered(f"{what}, {part!r}, has dtype {dtype}, which cannot be sent")
            stated = tf.dtypes.as_dtype(info.dtype).base_dtype.name
            if dtype != stated:
                note = f"{what}, {part!r}, is declared as {stated} but is {dtype} in its graph; the graph counts"
                source.notes.append(note)
            infos[part] = TensorInfo(dtype, shape)
            tensors[part] = str(tensor.name)
    return infos, tensors


def _parts(name: str, info: Any, what: str) -> Iterator[tuple[str, Any, tuple[int, ...] | None]]:
    """The tensors that it is made of: one, or those of a ragged or sparse tensor, each with a name of its own."""
    match info.WhichOneof("encoding"):
        case "name":
            shape = info.tensor_shape
            yield name, info, None if shape.unknown_rank else tuple(max(axis.size, -1) for axis in shape.dim)
        case "composite_tensor" if info.composite_tensor.type_spec.type_spec_class == _RAGGED:
            values, *splits = info.composite_tensor.components
            yield f"{name}.flat_values", values, None
            for dimension, each in enumerate(splits):
                yield f"{name}.row_splits_{dimension}", each, None
        case "coo_sparse":
            sparse, index = info.coo_sparse, tf.int64.as_datatype_enum
            yield f"{name}.indices", Info(name=sparse.indices_tensor_name, dtype=index), None
            yield f"{name}.values", Info(name=sparse.values_tensor_name, dtype=info.dtype), None
            yield f"{name}.dense_shape", Info(name=sparse.dense_shape_tensor_name, dtype=index), None
        case _:
            raise _NotOffered(f"{what} is not a dense, ragged or sparse tensor")


def _tensor(graph: Any, name: str, what: str) -> Any:
    try:
        return graph.as_graph_element(name, allow_tensor=True, allow_operation=False)
    except (KeyError, ValueError, TypeError):
        raise CannotLoad(f"the {what}, names {name!r}, which is not a tensor of its graph") from None
