"""The one place where TensorFlow is imported, so that it happens once."""

import logging

import tensorflow as tf

# TensorFlow has no public name for these.
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow.core.protobuf.config_pb2 import CallableOptions
from tensorflow.core.protobuf.meta_graph_pb2 import MetaGraphDef, SignatureDef, TensorInfo
from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig
from tensorflow.core.protobuf.struct_pb2 import TypeSpecProto
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
    "op_def",
    "tf",
]


def _not_a_deprecation(record: logging.LogRecord) -> bool:
    # The loader and `Session` are TensorFlow 1's on purpose; a user of the pool cannot do anything about it.
    return "is deprecated and will be removed" not in str(record.msg)


tf.get_logger().addFilter(_not_a_deprecation)
