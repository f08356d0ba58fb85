"""Whose threads run a signature makes no difference to its answers: all take subnormal numbers for zero."""

import platform

import numpy as np
import pytest
import tensorflow as tf

from workers.tf import subnormals
from workers.tf.callables import Callables
from workers.tf.subnormals import flushing

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="no other processor's bits are known"),
]

TINY = np.finfo(np.float32).tiny
GIVEN = np.array([TINY, -TINY, TINY / 2, 1.0], np.float32)  # the third is one itself


@pytest.fixture(scope="module")
def session():
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float32, [None], "x")
        tf.identity(x * 0.5, "half")
        with tf.compat.v1.Session() as session:
            yield session


def keeps_subnormals():
    return (GIVEN[:1] * np.float32(0.5))[0] > 0


@pytest.mark.parametrize("own_threads", [True, False])
def test_a_prepared_run_gives_the_bits_of_a_plain_one(session, own_threads):
    right = session.run("half:0", {"x:0": GIVEN})
    assert right.tolist() == [0, 0, 0, 0.5], "TensorFlow's threads keep none"
    (found,) = Callables(session).get(["x:0"], ["half:0"], own_threads)(GIVEN)
    assert found.tobytes() == right.tobytes()
    assert keeps_subnormals(), "what else the thread does is as ever"


def test_the_thread_is_as_before_after_a_run_that_fails():
    def fail():
        assert not keeps_subnormals()
        raise ValueError("so it is")

    with pytest.raises(ValueError, match="so it is"):
        flushing(fail)()
    assert keeps_subnormals()


def test_on_a_processor_whose_bits_are_not_known_a_run_is_as_it_is(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    subnormals._environments.cache_clear()
    try:
        assert flushing(len) is len
    finally:
        subnormals._environments.cache_clear()
