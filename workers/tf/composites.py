"""Which signatures of a TensorFlow 2 SavedModel take or give ragged or sparse tensors.

Their signature shows flat tensors alone (`r` and `r_1`, both [?]), whose axes 0 are of sizes of their own. The function
that it wraps, in the object graph, still says what they are parts of.
"""

from collections.abc import Iterator
from typing import Any

__all__ = ["composite_signatures"]


def composite_signatures(meta_graph: Any) -> frozenset[str]:
    """The names of those signatures; none where the file has no object graph, as those of TensorFlow 1."""
    graph = meta_graph.object_graph_def
    wrappers = dict(_wrappers(graph.nodes))
    if not wrappers:
        return frozenset()
    called = {
        function.signature.name: {
            attribute.func.name for node in function.node_def for attribute in node.attr.values() if attribute.func.name
        }
        for function in meta_graph.graph_def.library.function
        if function.signature.name in wrappers.values()
    }
    composite = {name for name, function in graph.concrete_functions.items() if _has_composite(function)}
    return frozenset(
        signature for signature, name in wrappers.items() if composite.intersection({name, *called.get(name, ())})
    )


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
    match value.WhichOneof("kind"):
        case "type_spec_value":
            return True  # plain tensors have a kind of their own
        case "tuple_value":
            return any(map(_is_composite, value.tuple_value.values))
        case "list_value":
            return any(map(_is_composite, value.list_value.values))
        case "dict_value":
            return any(map(_is_composite, value.dict_value.fields.values()))
        case "named_tuple_value":
            return any(_is_composite(pair.value) for pair in value.named_tuple_value.values)
    return False
