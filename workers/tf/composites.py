"""Which signatures of a TensorFlow 2 SavedModel take or give ragged or sparse tensors.

Their signature shows flat tensors alone (`r` and `r_1`, both [?]), whose axes 0 are of sizes of their own. The function
that it wraps, in the object graph, still says what they are parts of.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from workers.tf.library import TypeSpecProto

__all__ = ["composite_signatures"]


def composite_signatures(meta_graph: Any) -> Mapping[str, Mapping[str, str]]:
    """Those signatures, by name: of each the names of the inputs that are parts, by what these are of the first.

    So `r.row_splits_0` is `r_1`. None where the file has no object graph, as those of TensorFlow 1.
    """
    graph = meta_graph.object_graph_def
    wrappers = dict(_wrappers(graph.nodes))
    library = meta_graph.graph_def.library.function if wrappers else ()
    functions = {each.signature.name: each for each in library if each.signature.name in wrappers.values()}
    composite = {name: function for name, function in graph.concrete_functions.items() if _has_composite(function)}
    found: dict[str, Mapping[str, str]] = {}
    for signature, name in wrappers.items():
        if name in composite:
            found[signature] = {}
        if name not in functions:
            continue
        for node in functions[name].node_def:
            for attribute in node.attr.values():
                if attribute.func.name in composite:
                    keys = meta_graph.signature_def[signature].inputs
                    found[signature] = _parts(composite[attribute.func.name], functions[name], node, keys)
    return found


def _parts(function: Any, wrapper: Any, call: Any, keys: Mapping[str, Any]) -> dict[str, str]:
    """`call`: of the function, in the wrapper; what the function has captured comes after what it takes."""
    arguments = [argument.name for argument in wrapper.signature.input_arg]
    named = dict(zip(arguments, sorted(keys), strict=False))  # of an argument TensorFlow takes signs away
    fed = [named.get(tensor.partition(":")[0], "") for tensor in call.input]
    leaves = list(_leaves(function.canonicalized_input_signature))
    if sum(map(len, leaves)) > len(fed):
        return {}
    parts = {}
    for leaf in leaves:
        (first, *_), fed_here, fed = fed or [""], fed[: len(leaf)], fed[len(leaf) :]
        parts.update({f"{first}.{part}": name for part, name in zip(leaf, fed_here, strict=True) if part and name})
    return parts


def _leaves(value: Any) -> Iterator[tuple[str, ...]]:
    """Of each tensor that a function takes, in order, what its parts are; "" for one without, or of another kind."""
    match value.WhichOneof("kind"):
        case "tensor_spec_value" | "bounded_tensor_spec_value":
            yield ("",)
        case "type_spec_value":
            spec = value.type_spec_value
            number = spec.num_flat_components
            if spec.type_spec_class == TypeSpecProto.RAGGED_TENSOR_SPEC:
                yield ("flat_values", *(f"row_splits_{dimension}" for dimension in range(number - 1)))
            elif spec.type_spec_class == TypeSpecProto.SPARSE_TENSOR_SPEC:
                yield ("indices", "values", "dense_shape")
            else:
                yield ("",) * number
        case _:
            for each in _within(value):
                yield from _leaves(each)


def _wrappers(nodes: Any) -> Iterator[tuple[str, str]]:
    """The function of each signature, by the signature's name."""
    for child in nodes[0].children if len(nodes) else ():
        if child.local_name == "signatures" and child.node_id < len(nodes):
            for signature in nodes[child.node_id].children:
                if signature.node_id < len(nodes):
                    yield signature.local_name, nodes[signature.node_id].bare_concrete_function.concrete_function_name


def _has_composite(function: Any) -> bool:
    return any(map(_is_composite, (function.canonicalized_input_signature, function.output_signature)))


def _is_composite(value: Any) -> bool:
    # Plain tensors have a kind of their own.
    return value.WhichOneof("kind") == "type_spec_value" or any(map(_is_composite, _within(value)))


def _within(value: Any) -> list[Any]:
    """What a collection holds, in the order in which a function takes it."""
    match value.WhichOneof("kind"):
        case "tuple_value":
            return list(value.tuple_value.values)
        case "list_value":
            return list(value.list_value.values)
        case "dict_value":
            return [value.dict_value.fields[key] for key in sorted(value.dict_value.fields)]
        case "named_tuple_value":
            return [pair.value for pair in value.named_tuple_value.values]
    return []
