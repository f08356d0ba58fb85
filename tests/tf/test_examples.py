"""What the gateway makes for TensorFlow without it: serialized examples, and the names of dtypes."""

import numpy as np
import pytest

from pool.gateway.serving.examples import examples_of
from pool.gateway.serving.metadata import data_type
from pool.wire.tensors import DTYPES
from workers.tf.library import TensorInfo, tf

pytestmark = pytest.mark.tensorflow


def test_tensorflow_reads_the_examples_as_they_were_meant() -> None:
    long = "n" * 300
    body = {
        "context": {"query": "pizza", "both": 1},
        "examples": [
            {
                "names": ["foo", {"b64": "/wA="}, ""],
                "ratings": [8.0, -0.1, float("nan"), -float("inf")],
                "ages": [20, -1, True, (1 << 63) - 1, -(1 << 63)],
                long: [0] * 1000,
                "é": [],
                "both": 2,
            },
            {},
        ],
    }
    first, second = (tf.train.Example.FromString(each).features.feature for each in examples_of(body))
    assert list(first["names"].bytes_list.value) == [b"foo", b"\xff\0", b""]
    wanted = np.array([8.0, -0.1, np.nan, -np.inf], np.float32)
    np.testing.assert_array_equal(np.array(first["ratings"].float_list.value, np.float32), wanted)
    assert list(first["ages"].int64_list.value) == [20, -1, 1, (1 << 63) - 1, -(1 << 63)]
    assert list(first[long].int64_list.value) == [0] * 1000
    assert first["é"].WhichOneof("kind") is None
    for features, both in ((first, 2), (second, 1)):
        assert list(features["query"].bytes_list.value) == [b"pizza"]
        assert list(features["both"].int64_list.value) == [both]


def test_dtypes_have_the_names_that_tensorflow_gives_them() -> None:
    names = TensorInfo.DESCRIPTOR.fields_by_name["dtype"].enum_type.values_by_number
    tried = 0
    for dtype in DTYPES:
        try:
            right = names[tf.dtypes.as_dtype(dtype).as_datatype_enum].name
        except TypeError:
            continue  # what this TensorFlow does not have, no model has
        assert data_type(dtype) == right
        tried += 1
    assert tried > 15
