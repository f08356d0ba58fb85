"""What TensorFlow takes without a copy, what it gives back of it, and that it never writes a caller's array."""

import ctypes
import mmap
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from pool.wire.tensors import DTYPES, Array
from pool.wire.worker_messages import ModelSettings
from workers.tf.callables import Callables
from workers.tf.feeds import blank, private
from workers.tf.model import TensorFlowModel

pytestmark = pytest.mark.tensorflow

NUMBERS = [name for name, dtype in DTYPES.items() if not dtype.hasobject]
OWN_THREADS = pytest.mark.parametrize("own_threads", [False, True], ids=["the lane's thread", "TensorFlow's threads"])
PROT_READ = 1
WIDTH = 64


def array_at(offset: int, size: int, dtype: "np.dtype[Any]") -> Array:
    """`offset` bytes past a multiple of 64."""
    memory = np.zeros(size * dtype.itemsize + 128, np.uint8)
    start = -memory.ctypes.data % 64 + offset
    return memory[start : start + size * dtype.itemsize].view(dtype)


def aligned(values: Array) -> Array:
    array = array_at(0, values.size, values.dtype)
    array[:] = values.reshape(-1)
    return array.reshape(values.shape)


@pytest.fixture(scope="module")
def identities() -> Iterator[Callable[[str, Array, bool], Array]]:
    """Feeds an array to an identity of its dtype, which passes its input's buffer on, and fetches that."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        feeds = {name: tf.compat.v1.placeholder(name, None) for name in DTYPES}
        fetches = {name: tf.identity(feed).name for name, feed in feeds.items()}
        callables = Callables(session)

        def run(name: str, array: Array, own_threads: bool) -> Array:
            (fetched,) = callables.get([feeds[name].name], [fetches[name]], own_threads)(array)
            return fetched

        yield run


@OWN_THREADS
@pytest.mark.parametrize("size", [1, 1000, 1 << 18])
@pytest.mark.parametrize("name", NUMBERS)
def test_an_aligned_array_is_taken_as_it_is(identities, name, size, own_threads):
    dtype = DTYPES[name]
    for writeable in (True, False):
        array = array_at(0, size, dtype)
        array.flags.writeable = writeable
        fetched = identities(name, array, own_threads)
        assert fetched.ctypes.data == array.ctypes.data
        assert fetched.dtype == dtype
        assert np.may_share_memory(fetched, array)


@pytest.mark.parametrize("offset", [16, 32])
@pytest.mark.parametrize("name", NUMBERS)
def test_another_is_copied(identities, name, offset):
    array = array_at(offset, 1000, DTYPES[name])
    fetched = identities(name, array, False)
    assert not np.may_share_memory(fetched, array)
    assert fetched.tobytes() == array.tobytes()


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 4)])
def test_nothing_is_shared_of_what_is_empty(identities, shape):
    array = array_at(0, 0, np.dtype(np.float32)).reshape(shape)
    fetched = identities("float32", array, False)
    assert fetched.shape == shape
    assert not np.may_share_memory(fetched, array)


def test_strings_are_copied(identities):
    words = np.array([b"one", b"t\0wo\0"], object)
    fetched = identities("string", words, False)
    words[:] = b"changed"
    assert fetched.tolist() == [b"one", b"t\0wo\0"]


@OWN_THREADS
def test_nothing_writes_an_array_that_is_fed(own_threads):
    """TensorFlow reuses the buffers of what is no longer needed; writing these would end the process by SIGSEGV."""
    size = 1 << 14
    pages = mmap.mmap(-1, size * 4)
    array = np.frombuffer(pages, np.float32)
    array[:] = np.arange(size)
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(size * 4), PROT_READ) == 0
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float32, [size])
        in_function = tf.function(lambda y: tf.nn.relu(-y), autograph=False)
        fetches = [
            x + 1,
            -x,
            tf.nn.relu(tf.identity(x)),
            tf.sqrt(tf.reshape(x, [2, -1])),
            tf.sort(x),
            tf.tensor_scatter_nd_update(x, [[0]], [5.0]),
            in_function(x),
            tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, tf.nn.relu(y) + 1), [0, x])[1],
            tf.cond(x[0] > 1, lambda: x, lambda: -x),
        ]
        callables = Callables(session)
        for names in [*([fetch.name] for fetch in fetches), [fetch.name for fetch in fetches]]:
            callables.get([x.name], names, own_threads)(array)
    np.testing.assert_array_equal(array, np.arange(size))


class Views(tf.Module):
    """Each way in which an output can be its input, and some in which it cannot."""

    @tf.function(input_signature=[tf.TensorSpec([None, WIDTH], tf.float32, "x")])
    def nested(self, x):
        return tf.identity(x)

    @tf.function(input_signature=[tf.TensorSpec([None, WIDTH], tf.float32, "x")])
    def views(self, x):
        first, second = tf.split(x, 2)
        return {
            "identity": tf.identity(x),
            "reshape": tf.reshape(x, [-1, 8, 8]),
            "expanded": tf.expand_dims(x, 1),
            "squeezed": tf.squeeze(tf.reshape(x, [-1, 1, WIDTH]), 1),
            "bitcast": tf.bitcast(x, tf.int32),
            "tail": x[2:],
            "row": x[1],
            "first": first,
            "second": second,
            "unstacked": tf.unstack(tf.reshape(x, [2, -1]))[1],
            "called": self.nested(x),
            "branch": tf.cond(x[0, 0] > -1, lambda: x, lambda: x * 2),
            "loop": tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, y), [0, x])[1],
            "stopped": tf.stop_gradient(tf.ensure_shape(x, [None, WIDTH])),
            "columns": x[:, 1:3],
            "doubled": x * 2,
            "sum": tf.reduce_sum(x),
            "constant": tf.constant([1.0, 2.0]),
        }


@pytest.fixture(scope="module")
def views(backend, models) -> TensorFlowModel:
    folder = models / "views"
    module = Views()
    tf.saved_model.save(module, str(folder), signatures={"serving_default": module.views})
    return backend.load(ModelSettings("views", str(folder), True))


def test_an_output_changes_with_the_feed_just_where_their_addresses_meet(views):
    outputs = list(views.info.signatures["serving_default"].outputs)
    x = aligned(np.arange(4 * WIDTH, dtype=np.float32).reshape(4, WIDTH))
    fetched = views.run("serving_default", {"x": x}, outputs)
    before = {name: array.copy() for name, array in fetched.items()}
    said = {name for name, array in fetched.items() if np.may_share_memory(array, x)}
    x += 1000
    changed = {name for name, array in fetched.items() if not np.array_equal(array, before[name])}
    assert said == changed
    assert said.isdisjoint({"columns", "doubled", "sum", "constant"})
    assert {"identity", "reshape", "called", "branch"} <= said, "else this shows nothing"
    assert all(array.flags.c_contiguous for array in fetched.values())


def test_the_same_of_single_outputs(views):
    x = aligned(np.ones((4, WIDTH), np.float32))
    for output in ("identity", "doubled"):
        array = views.run("serving_default", {"x": x}, (output,))[output]
        assert np.may_share_memory(array, x) is (output == "identity")


def test_an_output_that_is_an_input_is_the_callers_array(backend, models):
    folder = models / "passed"
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float32, [None], name="x")
        tf.compat.v1.saved_model.simple_save(session, str(folder), {"x": x}, {"x": x, "more": x + 1})
    model = backend.load(ModelSettings("passed", str(folder), True))
    values = np.arange(3, dtype=np.float32)
    assert model.run("serving_default", {"x": values}, ["more", "x"])["x"] is values


@pytest.mark.parametrize("shape", [(), (0,), (3, 5)])
@pytest.mark.parametrize("name", ["float32", "bfloat16", "bool", "int4"])
def test_a_private_copy_is_the_only_one(identities, name, shape):
    array = np.ones(shape, DTYPES[name])
    copy = private(array)
    assert not np.may_share_memory(copy, array)
    assert copy.tobytes() == array.tobytes()
    assert copy.shape == shape
    if shape == (3, 5):
        assert np.may_share_memory(identities(name, copy, False), copy)


def test_blanks(views):
    spec = views.info.signatures["serving_default"].inputs["x"]
    assert blank(spec).shape == (1, WIDTH)
    assert not blank(spec).any()
