"""A SavedModel: of a TensorFlow 1 Estimator, of `tf.saved_model.save`, of Keras' `model.export`."""

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from workers.backend import CannotLoad
from workers.tf.errors import passes
from workers.tf.files import CORRUPT, Source
from workers.tf.library import SavedModelLoader

__all__ = ["read_saved_model", "restore_variables"]

_SERVE = frozenset({"serve"})
_PATTERN = frozenset("*?[\\")


def read_saved_model(folder: Path, tags: Sequence[str]) -> Source:
    """One graph of the folder. `tags`: of the graph; none: the one tagged "serve", or the only one."""
    try:
        loader = SavedModelLoader(str(folder))
    except (OSError, UnicodeDecodeError) as error:
        if passes(error):
            raise
        raise CannotLoad(CORRUPT) from None
    graphs = loader.saved_model.meta_graphs
    chosen = sorted(_chosen([frozenset(graph.meta_info_def.tags) for graph in graphs], frozenset(tags)))
    meta_graph: Any = loader.get_meta_graph_def_from_tags(chosen)

    def restore(session: Any) -> None:
        restore_variables(session, meta_graph, os.path.join(folder, "variables", "variables"))
        loader.run_init_ops(session, chosen)  # tables, from asset files too

    def signature_defs(_: Any) -> Mapping[str, Any]:
        declared: Mapping[str, Any] = meta_graph.signature_def
        return declared

    return Source(meta_graph, restore, signature_defs, frozenset(_composite_signatures(meta_graph)))


def restore_variables(session: Any, meta_graph: Any, prefix: str) -> None:
    """`prefix`: what the paths of the checkpoint's files begin with. Raises `CannotLoad` if they are missing."""
    saver = meta_graph.saver_def
    if not saver.restore_op_name:
        return
    older = os.path.basename(prefix) and os.path.exists(prefix)  # a checkpoint of the first format is one file
    if not older and not os.path.exists(f"{prefix}.index"):
        name = os.path.basename(prefix)
        raise CannotLoad(f"the checkpoint of its variables is missing: {name}.index and its .data files")
    with _named_plainly(prefix) as plain:
        session.run(saver.restore_op_name, {saver.filename_tensor_name: plain})


@contextmanager
def _named_plainly(prefix: str) -> Iterator[str]:
    """TensorFlow takes the path of a checkpoint for a pattern, so one that looks like one gets links to its files."""
    if _PATTERN.isdisjoint(prefix):
        yield prefix
        return
    folder, name = os.path.split(prefix)
    with tempfile.TemporaryDirectory(prefix="pool-checkpoint-") as links:
        for entry in os.listdir(folder):
            if entry == name or entry.startswith(f"{name}."):
                os.symlink(
                    os.path.abspath(os.path.join(folder, entry)),
                    os.path.join(links, f"model{entry.removeprefix(name)}"),
                )
        yield os.path.join(links, "model")


def _chosen(sets: Sequence[frozenset[str]], asked: frozenset[str]) -> frozenset[str]:
    if not sets:
        raise CannotLoad("it holds no graph: copy or export it again")
    if asked:
        if asked not in sets:
            raise CannotLoad(f"no graph is tagged {_named([asked])} and nothing else; `tags` may be: {_named(sets)}")
        return asked
    if _SERVE in sets:
        return _SERVE
    if len(set(sets)) > 1:
        raise CannotLoad(
            f'no graph has only the tag "serve", and there are several: {_named(sets)}; choose one with `tags`'
        )
    return sets[0]


def _named(sets: Iterable[frozenset[str]]) -> str:
    return "; ".join(sorted(", ".join(sorted(tags)) or "none" for tags in sets))


def _composite_signatures(meta_graph: Any) -> Iterator[str]:
    """The signatures of TensorFlow 2 that take or give ragged or sparse tensors.

    They show flat tensors alone (`r` and `r_1`, both [?]), whose axes 0 have sizes of their own. The function that a
    signature wraps says in the object graph what they are parts of.
    """
    graph = meta_graph.object_graph_def
    composite = {name for name, function in graph.concrete_functions.items() if _has_composite(function)}
    if not composite:
        return
    functions = {function.signature.name: function for function in meta_graph.graph_def.library.function}
    for signature, name in _wrappers(graph.nodes):
        calls = functions[name].node_def if name in functions else ()
        called = {attribute.func.name for node in calls for attribute in node.attr.values()}
        if composite & {name, *called}:
            yield signature


def _wrappers(nodes: Any) -> Iterator[tuple[str, str]]:
    """Each signature's name, and that of its function."""
    for child in nodes[0].children if len(nodes) else ():
        if child.local_name == "signatures" and child.node_id < len(nodes):
            for signature in nodes[child.node_id].children:
                if signature.node_id < len(nodes):
                    yield signature.local_name, nodes[signature.node_id].bare_concrete_function.concrete_function_name


def _has_composite(function: Any) -> bool:
    return any(map(_is_composite, (function.canonicalized_input_signature, function.output_signature)))


def _is_composite(value: Any) -> bool:
    match value.WhichOneof("kind"):
        case "type_spec_value":  # plain tensors have a kind of their own
            return True
        case "tuple_value":
            return any(map(_is_composite, value.tuple_value.values))
        case "list_value":
            return any(map(_is_composite, value.list_value.values))
        case "dict_value":
            return any(map(_is_composite, value.dict_value.fields.values()))
        case "named_tuple_value":
            return any(_is_composite(pair.value) for pair in value.named_tuple_value.values)
    return False
