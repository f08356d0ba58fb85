"""Models that these tests make, and how they run them."""

import numpy as np

from workers.tf.library import tf
from workers.tf.model import Backend

v1 = tf.compat.v1

TENSORFLOW = dict.fromkeys(("per_process_gpu_memory_fraction", "intra_op_parallelism_threads"))
TENSORFLOW |= {"inter_op_parallelism_threads": None, "device_count": {}, "op_libraries": []}
TENSORFLOW |= {"allow_growth": True, "allow_soft_placement": True, "log_device_placement": False}
MODEL = {"name": "m", "batching": "auto", "max_batch": 4, "stateful": None, "tags": None, "inputs": {}, "outputs": {}}
MODEL |= {"xla": False, "mixed_precision": False, "layer_devices": {}, "clear_devices": None}


def backend_with(state="/nowhere", **tensorflow):
    return Backend({"tensorflow": TENSORFLOW | tensorflow, "device": {"uuids": []}, "state": str(state)})


def save_graph(folder, build, tags=("serve",)):
    """A SavedModel of TensorFlow 1. `build` makes its graph and gives the inputs and outputs of each signature."""
    with tf.Graph().as_default(), v1.Session(config=v1.ConfigProto(allow_soft_placement=True)) as session:
        signatures = {name: definition(*sides) for name, sides in build().items()}
        session.run([v1.global_variables_initializer(), v1.tables_initializer()])
        builder = v1.saved_model.Builder(str(folder))
        ends = {"main_op": v1.tables_initializer(), "assets_collection": v1.get_collection("asset_filepaths")}
        builder.add_meta_graph_and_variables(session, list(tags), signatures, **ends)
        builder.save()
    return folder


def line_of(words, file):
    """A word's line in a file, which becomes an asset of the model; -1 where it has none."""
    index = tf.lookup.TextFileIndex
    ends = (tf.string, index.WHOLE_LINE, tf.int64, index.LINE_NUMBER)
    return tf.lookup.StaticHashTable(tf.lookup.TextFileInitializer(str(file), *ends), -1).lookup(words)


def adopted(array):
    """A copy that TensorFlow takes over without a copy of its own: it begins at a multiple of 64 bytes."""
    memory = np.empty(array.nbytes + 64, np.uint8)
    begin = -memory.ctypes.data % 64
    copy = memory[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def definition(*sides):
    infos = [{name: v1.saved_model.build_tensor_info(each) for name, each in side.items()} for side in sides]
    return v1.saved_model.build_signature_def(*infos)


def run(model, feeds, signature="serving_default", outputs=()):
    return model.prepare(signature, list(feeds), outputs or list(model.signatures[signature].outputs))(feeds)
