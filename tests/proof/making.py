"""Graphs as a loaded SavedModel has them, made without a file."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import tensorflow as tf

from workers.tf.rows import prove


def spec(*shape, dtype=tf.float32, name="x"):
    return tf.TensorSpec([None, *shape], dtype, name)


def graph_of(concrete):
    """Its variables, tables and constants stand in the graph, as in a SavedModel; here they are captured."""
    graph_def = concrete.graph.as_graph_def()
    nodes = {node.name: node for node in graph_def.node}
    for captured, placeholder in concrete.graph.captures:
        node = nodes[placeholder.op.name]
        node.attr.clear()
        variable = next((each for each in concrete.variables if each.handle is captured), None)
        if captured.dtype != tf.resource:
            node.op = "Const"
            node.attr["dtype"].type = captured.dtype.as_datatype_enum
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(captured.numpy()))
        elif variable is None:
            node.op = "HashTableV2"
        else:
            node.op = "VarHandleOp"
            node.attr["dtype"].type = variable.dtype.as_datatype_enum
            node.attr["shape"].shape.CopyFrom(variable.shape.as_proto())
    return graph_def


def traced(function, *specs):
    return tf.function(function, input_signature=list(specs), autograph=False).get_concrete_function()


def question(concrete):
    """The arguments of `prove`."""
    inputs = concrete.inputs[: len(concrete.inputs) - len(concrete.graph.captures)]
    feeds = {tensor.name: tensor.name for tensor in inputs}
    shapes = {tensor.name: tuple(-1 if size is None else size for size in tensor.shape) for tensor in inputs}
    outputs = {str(place): tensor.name for place, tensor in enumerate(concrete.outputs)}
    return graph_of(concrete), feeds, shapes, outputs


def verdicts(concrete):
    """One line of why not, or nothing, for each output."""
    return [*prove(*question(concrete)).values()]


def why_not(function, *specs):
    """Why the outputs of a function are not proven; empty if all are."""
    return next(filter(None, verdicts(traced(function, *specs))), "")
