"""What is told of a model, and what a body alone means to it: pure, from what a pool could say."""

import json
from typing import Any

import numpy as np
import pytest

from gateway.told import Spec, model, signature
from pool.gateway.catalogue import numbers
from pool.gateway.http import Refused
from pool.gateway.inference.descriptions import config, index, metadata
from pool.gateway.inference.paths import Place
from pool.gateway.inference.raw import raw

HERE = Place("m", None, "infer")
ROWS: dict[str, Spec] = {"x": ("float32", (-1, 3)), "s": ("string", (-1,))}
SUM: dict[str, Spec] = {"x": ("float32", (-1, 3))}


def of(inputs: dict[str, Spec], outputs: dict[str, Spec] | None = None) -> Any:
    return model({"serving_default": signature(inputs, outputs or {"y": ("float32", (-1,))})})


def test_a_first_axis_of_any_size_is_the_batch() -> None:
    rows = config(of(ROWS), None)
    assert rows["max_batch_size"] == 32
    assert [(each["name"], each["data_type"], each["dims"]) for each in rows["input"]] == [
        ("x", "TYPE_FP32", [3]),
        ("s", "TYPE_STRING", []),
    ]
    assert [each["dims"] for each in rows["output"]] == [[]]
    alone = config(of(SUM, {"y": ("complex64", ())}), None)
    assert alone["max_batch_size"] == 0
    assert [each["dims"] for each in alone["input"]] == [[-1, 3]]
    assert [(each["data_type"], each["dims"]) for each in alone["output"]] == [("TYPE_INVALID", [])]
    assert json.dumps([rows, alone])


def test_metadata_has_the_batch_in_its_shapes_and_all_versions() -> None:
    beside = [model({"s": signature(ROWS)}, version=number, default=number == 12) for number in (3, 12)]
    found = metadata(beside, beside[1], None)
    assert found["versions"] == ["3", "12"]
    assert found["inputs"] == [
        {"name": "x", "datatype": "FP32", "shape": [-1, 3]},
        {"name": "s", "datatype": "BYTES", "shape": [-1]},
    ]
    assert numbers(model({})) == (1,)
    assert numbers(model({}, versions=(4, 7))) == (4, 7)


def test_a_model_that_no_worker_has_loaded_yet_is_told_so() -> None:
    with pytest.raises(Refused, match="model 'm' is not loaded yet") as caught:
        config(model({}), None)
    assert caught.value.status == 503


def test_the_index_has_each_model_with_its_state() -> None:
    leaves = model({}, "leaves", ready=(), leaving=True)
    models = [model({}), model({}, "loads", ready=()), model({}, "gone", slots=(), ready=()), leaves]
    assert [(each["name"], each["state"]) for each in index(models, only_ready=False)] == [
        ("m", "READY"),
        ("loads", "LOADING"),
        ("gone", "UNAVAILABLE"),
        ("leaves", "UNLOADING"),
    ]
    assert [each["name"] for each in index(models, only_ready=True)] == ["m"]


@pytest.mark.parametrize(
    ("spec", "size_bytes", "shape"),
    [
        (("float32", (-1, 3)), 12, (1, 3)),
        (("float32", (-1, -1)), 20, (1, 5)),
        (("float32", (2, 3)), 24, (2, 3)),
        (("float32", ()), 4, ()),
        (("bool", (-1,)), 1, (1,)),
        (("float32", (-1, -1)), 0, (1, 0)),
        (("string", (-1,)), 5, (1,)),
        (("string", ()), 0, ()),
        (("string", (-1, -1)), 5, (1, 1)),
    ],
)
def test_a_body_alone_has_the_shape_that_its_size_says(spec: Spec, size_bytes: int, shape: tuple[int, ...]) -> None:
    body = np.ones(size_bytes, np.uint8)
    plan, inputs = raw(HERE, of({"x": spec}), None, body)
    assert inputs["x"].shape == shape
    if spec[0] == "string":
        assert inputs["x"].item() == body.tobytes()
    else:
        assert inputs["x"].tobytes() == body.tobytes()
    assert (plan.options, plan.is_binary, plan.outputs) == ({"signature": "serving_default"}, True, None)


@pytest.mark.parametrize(
    ("inputs", "size_bytes", "text"),
    [
        ({"x": ("float32", (-1, 3))}, 24, "24 bytes have no single shape"),
        ({"x": ("float32", (-1, 3))}, 11, "11 bytes have no single shape"),
        ({"x": ("float32", (-1, -1, -1))}, 24, "no single shape"),
        ({"x": ("float32", (-1, -1, 0))}, 0, "no single shape"),
        ({"x": ("float32", (2,))}, 4, "no single shape"),
        ({"x": ("string", (-1, 2))}, 4, "no single shape"),
        ({"x": ("bool", (2,))}, 2, "a byte 0 or 1"),
        ({"x": "float32"}, 4, "needs a header"),
        ({"x": ("complex64", (1,))}, 8, "needs a header"),
        ({"x": ("float32", (1,)), "y": ("float32", (1,))}, 8, "has not one input: x, y"),
    ],
)
def test_a_body_that_could_be_several_things_is_refused(inputs: dict[str, Spec], size_bytes: int, text: str) -> None:
    with pytest.raises(Refused, match=text) as caught:
        raw(HERE, of(inputs), None, np.full(size_bytes, 2, np.uint8))
    assert caught.value.status == 400
