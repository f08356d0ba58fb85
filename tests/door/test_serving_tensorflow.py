"""TensorFlow Serving's REST API with TensorFlow behind it: what its documentation shows gives the same JSON."""

import json
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pool.door.serving import example
from pool.errors import InvalidInput
from support.doors import RunningDoor, start_door
from support.pools import pool_in

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from tf.making import save_graph, v1
    from workers.tf.library import tf

pytestmark = [pytest.mark.door, pytest.mark.tensorflow]


def half_plus(folder: Path, plus: float) -> None:
    """As TensorFlow Serving's own: y = x / 2 + `plus`, of a number in a row or of the feature "x" of an example."""

    def build():
        a, b = (v1.get_variable(name, initializer=value) for name, value in (("a", 0.5), ("b", plus)))
        examples = v1.placeholder(tf.string, name="tf_example")
        parsed = tf.io.parse_example(tf.reshape(examples, [-1]), {"x": tf.io.FixedLenFeature([1], tf.float32)})
        x = tf.identity(parsed["x"], name="x")
        y = tf.add(a * x, b, name="y")
        return {
            "serving_default": ({"x": x}, {"y": y}),
            "regress_x_to_y": ({"inputs": examples}, {"outputs": y}),
            "classify_x_to_y": ({"inputs": examples}, {"scores": y}),
            "tensorflow/serving/regress": ({"inputs": examples}, {"outputs": y}),
        }

    save_graph(folder, build)


def native(folder: Path) -> None:
    module = tf.Module()
    examples = [tf.TensorSpec([None], tf.string, name="inputs")]
    rows = tf.TensorSpec([None, 3], tf.float32)

    def x(inputs):
        return tf.io.parse_example(inputs, {"x": tf.io.FixedLenFeature([], tf.float32)})["x"]

    @tf.function(input_signature=examples)
    def classify(inputs):
        labels = tf.tile(tf.constant([["low", "high"]]), [tf.size(inputs), 1])
        return {"classes": labels, "scores": tf.stack([-x(inputs), x(inputs)], axis=1)}

    @tf.function(input_signature=examples)
    def wide(inputs):
        return {"outputs": tf.stack([x(inputs), x(inputs)], axis=1), "scores": x(inputs)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="image_bytes")])
    def images(image_bytes):
        return {"same_bytes": tf.identity(image_bytes), "text": tf.strings.as_string(tf.strings.length(image_bytes))}

    @tf.function(input_signature=[rows, rows])
    def both(a, b):
        return {"total": a + b, "sum": tf.reduce_sum(a + b)}

    module.functions = signatures = {"classify": classify, "wide": wide, "images": images, "both": both}
    tf.saved_model.save(module, str(folder), signatures=signatures)


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDoor]:
    folder = tmp_path_factory.mktemp("models")
    half_plus(folder / "half_plus_two" / "00000123", 2.0)
    half_plus(folder / "saved_model_half_plus_three" / "00000123", 3.0)
    native(folder / "native")
    models = "".join(f'[[model]]\nname = "{each.name}"\npath = "{each}"\n' for each in folder.iterdir())
    with (
        pool_in(tmp_path_factory.mktemp("pool"), '[pool]\ndevices = ["cpu"]\n' + models) as pool,
        start_door(pool) as running,
    ):
        yield running


def curl(door: RunningDoor, path: str, *options: str) -> tuple[int, Any]:
    command = ["curl", "--silent", "--show-error", "--max-time", "60", "--write-out", "\n%{http_code}", *options]
    done = subprocess.run([*command, f"http://{door.address}{path}"], capture_output=True, check=True, timeout=90)
    body, _, status = done.stdout.rpartition(b"\n")
    return int(status), json.loads(body)


def post(door: RunningDoor, path: str, body: Any, wanted: int = 200) -> Any:
    status, answer = curl(door, f"/v1/models/{path}", "-d", json.dumps(body))
    assert status == wanted, answer
    return answer


def test_what_the_documentation_shows(door):
    shown = json.loads("""{"model_version_status": [
        {"version": "123", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}]}""")
    three = "/v1/models/saved_model_half_plus_three"
    assert curl(door, three) == curl(door, f"{three}/versions/123") == (200, shown)
    numbers = ("-d", '{"instances": [1.0,2.0,5.0]}', "-X", "POST")
    assert curl(door, f"{three}:predict", *numbers) == (200, {"predictions": [3.5, 4.0, 5.5]})
    assert curl(door, "/v1/models/half_plus_two:predict", *numbers) == (200, {"predictions": [2.5, 3.0, 4.5]})
    status, answer = curl(door, "/v1/models/half:predict", *numbers)
    assert (status, list(answer)) == (404, ["error"])
    body = '{"signature_name": "tensorflow/serving/regress", "examples": [{"x": 1.0}, {"x": 2.0}]}'
    assert curl(door, f"{three}:regress", "-d", body, "-X", "POST") == (200, {"results": [3.5, 4.0]})


def test_each_method_of_half_plus_two(door):
    path = "half_plus_two/versions/123"
    assert post(door, f"{path}:predict", {"inputs": [3.0, 4.0]}) == {"outputs": [3.5, 4.0]}
    assert post(door, f"{path}:predict", {"instances": [[1111111.0]]}) == {"predictions": [[555557.5]]}
    body = {"signature_name": "classify_x_to_y", "examples": [{"x": 20.0}, {"x": [10.0]}]}
    assert post(door, f"{path}:classify", body) == {"results": [[["", 12.0]], [["", 7.0]]]}
    body = {"signature_name": "regress_x_to_y", "context": {"x": 80.0}, "examples": [{}, {"x": 2.0}]}
    assert post(door, f"{path}:regress", body) == {"results": [42.0, 3.0]}
    assert "is not for classify" in post(door, f"{path}:classify", body, 400)["error"]
    body = {"signature_name": "regress_x_to_y", "examples": [{"x": 80}]}
    assert "Data types don't match" in post(door, "half_plus_two:regress", body, 500)["error"]


def test_signatures_of_tensorflow_2(door):
    body = {"signature_name": "classify", "examples": [{"x": 0.25}, {"x": 2.0}]}
    results = [[["low", -0.25], ["high", 0.25]], [["low", -2.0], ["high", 2.0]]]
    assert post(door, "native:classify", body) == {"results": results}
    body["signature_name"] = "wide"
    assert "must be float32 [2]" in post(door, "native:regress", body, 400)["error"]
    assert "[2, k]" in post(door, "native:classify", body, 400)["error"]
    body = {"signature_name": "images", "instances": [{"b64": "/9j/"}, {"b64": "aGVsbG8="}]}
    rows = [{"same_bytes": {"b64": "/9j/"}, "text": "3"}, {"same_bytes": {"b64": "aGVsbG8="}, "text": "5"}]
    assert post(door, "native:predict", body) == {"predictions": rows}
    assert "there are several signatures" in post(door, "native:predict", {"instances": [1]}, 400)["error"]


def test_several_inputs_and_outputs(door):
    first, second = {"a": [1, 2, 3], "b": [1.0, 0.5, 0.25]}, {"a": [0, 0, 1], "b": [1, 1, 1]}
    body = {"signature_name": "both", "inputs": {name: [first[name], second[name]] for name in first}}
    outputs = {"total": [[2.0, 2.5, 3.25], [1.0, 1.0, 2.0]], "sum": 11.75}
    assert post(door, "native:predict", body) == {"outputs": outputs}
    body = {"signature_name": "both", "instances": [first, second]}
    assert "give 'inputs' in place" in post(door, "native:predict", body, 400)["error"], "one output is a scalar"
    for wrong in ({"instances": [1]}, {"inputs": [1]}, {"instances": [{"a": [1, 2, 3]}]}):
        assert "input" in post(door, "native:predict", {"signature_name": "both", **wrong}, 400)["error"]


def parsed(serialized):
    features = tf.train.Example.FromString(serialized).features.feature
    return {name: [*getattr(each, each.WhichOneof("kind")).value] for name, each in features.items()}


def test_examples_are_what_tensorflow_reads():
    features = {"a": 1.5, "b": [1, True, -1, 300, (1 << 63) - 1], "é": ["x", {"b64": "/w=="}], "f": [-0.0]}
    wanted = {"a": [1.5], "b": [1, 1, -1, 300, (1 << 63) - 1], "é": [b"x", b"\xff"], "f": [-0.0]}
    assert parsed(example(features)) == wanted
    assert tf.train.Example.FromString(example({"none": []})).features.feature["none"].WhichOneof("kind") is None
    assert parsed(example({"a": 1}) + example({"a": 2, "b": "x" * 300})) == {"a": [2], "b": [b"x" * 300]}


def test_what_is_no_example_says_why():
    values = [None, {"b": 1}, [[1]], [1, 1.0], [1, "x"], {"b64": "?"}, 1 << 63, 1e39, "\ud800"]
    for features in (1, [{"a": 1}], {"\ud800": 1}, *({"a": value} for value in values)):
        with pytest.raises(InvalidInput):
            example(features)
