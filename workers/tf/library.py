"""The one place where TensorFlow is imported, so that it happens once."""

import logging
import os

import tensorflow as tf

# TensorFlow has no public name for these.
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow.core.protobuf.config_pb2 import CallableOptions
from tensorflow.core.protobuf.meta_graph_pb2 import MetaGraphDef, SignatureDef, TensorInfo
from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig
from tensorflow.core.protobuf.struct_pb2 import TypeSpecProto
from tensorflow.python.framework.convert_to_constants import (
    convert_variables_to_constants_from_session_graph as freeze_variables,
)
from tensorflow.python.framework.op_def_registry import get as op_def
from tensorflow.python.saved_model.loader_impl import SavedModelLoader

__all__ = [
    "CallableOptions",
    "MetaGraphDef",
    "RewriterConfig",
    "SavedModelLoader",
    "SignatureDef",
    "TensorInfo",
    "TensorProto",
    "TypeSpecProto",
    "freeze_variables",
    "op_def",
    "tf",
]


def _not_a_deprecation(record: logging.LogRecord) -> bool:
    # The loader and `Session` are TensorFlow 1's on purpose; a user of the pool cannot do anything about it.
    return "is deprecated and will be removed" not in str(record.msg)


tf.get_logger().addFilter(_not_a_deprecation)

# Without it XLA leaves alone what runs on the CPU; it does nothing where no Session asks for XLA. Read by TensorFlow
# when it first runs something.
_XLA_ON_CPU = "--tf_xla_cpu_global_jit"
_given = os.environ.get("TF_XLA_FLAGS", "")
if _XLA_ON_CPU not in _given:
    os.environ["TF_XLA_FLAGS"] = f"{_given} {_XLA_ON_CPU}".strip()
