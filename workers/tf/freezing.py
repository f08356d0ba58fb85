"""Variables made constants: TensorFlow folds those, and its kernels lay them out once."""

from collections.abc import Iterable, Iterator
from typing import Any

from workers.backend import CannotLoad
from workers.tf.library import freeze_variables, tf
from workers.tf.tables import fills_a_table

__all__ = ["frozen"]

_VARIABLES = frozenset({"Variable", "VariableV2", "VarHandleOp"})
_INIT_OPS = ("saved_model_main_op", "legacy_init_op")
_ASSETS = ("asset_filepaths", "saved_model_assets")


def frozen(session: Any, read: Any, tensors: Iterable[str]) -> Any:
    """The `MetaGraphDef` `read`, of which `session` has the values, without its variables.

    `tensors`: what the model's signatures feed and fetch; `read` may not declare them.

    What fills its tables is kept, and so are variables of strings, which are the paths of files: the model's own
    initializer assigns them. All that no signature needs is gone. Raises `CannotLoad` where there is nothing to freeze,
    and what TensorFlow raises.
    """
    graph_def = session.graph.as_graph_def()
    nodes = {node.name: node for node in graph_def.node}
    variables = [node for node in graph_def.node if node.op in _VARIABLES]
    paths = [node.name for node in variables if node.attr["dtype"].type == tf.string.as_datatype_enum]
    if len(paths) == len(variables):
        raise CannotLoad("it has no variables to freeze")
    asked = (name.partition(":")[0] for name in tensors)
    kept = {name for name in (*asked, *_kept(read)) if name in nodes}
    kept |= {node.name for node in graph_def.node if fills_a_table(node.op)}
    with session.graph.as_default():
        constant = freeze_variables(session, graph_def, sorted(kept), variable_names_denylist=paths)
    made = type(read)()
    made.CopyFrom(read)
    made.graph_def.CopyFrom(constant)
    made.ClearField("saver_def")  # nothing is restored
    for name in list(made.collection_def):
        if name not in (*_INIT_OPS, *_ASSETS):
            del made.collection_def[name]
    return made


def _kept(read: Any) -> Iterator[str]:
    """The nodes that somebody asks for by name."""
    for signature in read.signature_def.values():
        for info in (*signature.inputs.values(), *signature.outputs.values()):
            for name in _tensors(info):
                yield name.partition(":")[0]
    for collection in _INIT_OPS:
        yield from read.collection_def[collection].node_list.value if collection in read.collection_def else ()
    for asset in read.asset_file_def:
        yield asset.tensor_info.name.partition(":")[0]


def _tensors(info: Any) -> Iterator[str]:
    match info.WhichOneof("encoding"):
        case "name":
            yield info.name
        case "composite_tensor":
            for component in info.composite_tensor.components:
                yield from _tensors(component)
        case "coo_sparse":
            yield info.coo_sparse.values_tensor_name
            yield info.coo_sparse.indices_tensor_name
            yield info.coo_sparse.dense_shape_tensor_name
