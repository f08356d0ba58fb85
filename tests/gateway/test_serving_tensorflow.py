"""TensorFlow Serving's REST API with TensorFlow behind it: what its documentation shows with curl gives equal JSON."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from gateway.running import Gateway, gateway
from support.pool_process import PoolProcess, pool_process, stub_config

pytestmark = [pytest.mark.tensorflow, pytest.mark.gateway]


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolProcess]:
    folder = tmp_path_factory.mktemp("models")
    maker = Path(__file__).with_name("saved_models.py")
    done = subprocess.run([sys.executable, str(maker), str(folder)], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    models = "".join(f'[[model]]\nname = "{path.name}"\npath = "{path}"\n' for path in sorted(folder.iterdir()))
    with pool_process(stub_config(devices='["cpu"]', models=models)) as running:
        yield running


@pytest.fixture(scope="module")
def door(pool: PoolProcess) -> Iterator[Gateway]:
    with gateway(pool.endpoint) as running:
        yield running


def curl(door: Gateway, path: str, *options: str) -> tuple[int, Any]:
    command = ["curl", "--silent", "--show-error", "--max-time", "60", "--write-out", "\n%{http_code}", *options]
    done = subprocess.run([*command, door.url + path], capture_output=True, check=True, timeout=90)
    body, _, status = done.stdout.rpartition(b"\n")
    return int(status), json.loads(body)


def post(door: Gateway, path: str, body: Any) -> Any:
    answer = requests.post(f"{door.url}/v1/models/{path}", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_the_status_that_the_documentation_shows(door: Gateway) -> None:
    shown = """
    {"model_version_status": [
        {"version": "123", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}]}
    """
    for path in ("", "/versions/123"):
        assert curl(door, f"/v1/models/saved_model_half_plus_three{path}") == (200, json.loads(shown))


def test_the_predictions_that_the_documentation_shows(door: Gateway) -> None:
    numbers = ("-d", '{"instances": [1.0,2.0,5.0]}', "-X", "POST")
    three = curl(door, "/v1/models/saved_model_half_plus_three:predict", *numbers)
    assert three == (200, {"predictions": [3.5, 4.0, 5.5]})
    assert curl(door, "/v1/models/half_plus_two:predict", *numbers) == (200, {"predictions": [2.5, 3.0, 4.5]})
    status, found = curl(door, "/v1/models/half:predict", *numbers)
    assert status == 404
    assert list(found) == ["error"]


def test_the_regression_that_the_documentation_shows(door: Gateway) -> None:
    examples = '{"signature_name": "tensorflow/serving/regress", "examples": [{"x": 1.0}, {"x": 2.0}]}'
    found = curl(door, "/v1/models/saved_model_half_plus_three:regress", "-d", examples, "-X", "POST")
    assert found == (200, {"results": [3.5, 4.0]})


def test_each_method_of_half_plus_two(door: Gateway) -> None:
    for path in ("half_plus_two", "half_plus_two/versions/123"):
        assert post(door, f"{path}:predict", {"inputs": [3.0, 4.0]}) == {"outputs": [3.5, 4.0]}
        assert post(door, f"{path}:predict", {"instances": [[1111111.0]]}) == {"predictions": [[555557.5]]}
        body: Any = {"signature_name": "regress_x_to_y", "examples": [{"x": 80.0}]}
        assert post(door, f"{path}:regress", body) == {"results": [42.0]}
        body = {"signature_name": "classify_x_to_y", "examples": [{"x": 20.0}, {"x": [10.0]}]}
        assert post(door, f"{path}:classify", body) == {"results": [[["", 12.0]], [["", 7.0]]]}
    body = {"signature_name": "regress_x_to_y", "context": {"x": 80.0}, "examples": [{}, {"x": 2.0}]}
    assert post(door, "half_plus_two:regress", body) == {"results": [42.0, 3.0]}
    status, found = curl(door, "/v1/models/half_plus_two:classify", "-d", json.dumps(body))
    assert status == 400
    assert "not made for :classify" in found["error"]


def test_an_example_that_the_graph_cannot_read_is_the_graphs_error(door: Gateway) -> None:
    body = json.dumps({"signature_name": "regress_x_to_y", "examples": [{"x": 80}]})
    status, found = curl(door, "/v1/models/half_plus_two:regress", "-d", body)
    assert status == 500
    assert "Data types don't match" in found["error"]


def info(dtype: str, name: str, shape: list[str] | None) -> dict[str, Any]:
    axes = [{"size": axis, "name": ""} for axis in shape or []]
    return {"dtype": dtype, "tensor_shape": {"dim": axes, "unknown_rank": shape is None}, "name": name}


def test_the_metadata_of_half_plus_two(door: Gateway) -> None:
    def definition(takes: dict[str, Any], gives: dict[str, Any], method: str) -> dict[str, Any]:
        return {"inputs": takes, "outputs": gives, "method_name": f"tensorflow/serving/{method}", "defaults": {}}

    rows = ["-1", "1"]
    examples = {"inputs": info("DT_STRING", "tf_example:0", None)}
    y = info("DT_FLOAT", "y:0", rows)
    regress = definition(examples, {"outputs": y}, "regress")
    wanted = {
        "serving_default": definition({"x": info("DT_FLOAT", "x:0", rows)}, {"y": y}, "predict"),
        "regress_x_to_y": regress,
        "regress_x2_to_y3": definition(
            {"inputs": info("DT_FLOAT", "x2:0", rows)}, {"outputs": info("DT_FLOAT", "y3:0", rows)}, "regress"
        ),
        "classify_x_to_y": definition(examples, {"scores": y}, "classify"),
        "tensorflow/serving/regress": regress,
    }
    spec = {"name": "half_plus_two", "signature_name": "", "version": "123"}
    found = curl(door, "/v1/models/half_plus_two/metadata")
    assert found == (200, {"model_spec": spec, "metadata": {"signature_def": {"signature_def": wanted}}})


def test_signatures_of_tensorflow_2_are_called_by_each_method(door: Gateway) -> None:
    body: Any = {"signature_name": "classify", "examples": [{"x": 0.25}, {"x": 2.0}]}
    results = [[["low", -0.25], ["high", 0.25]], [["low", -2.0], ["high", 2.0]]]
    assert post(door, "native:classify", body) == {"results": results}
    assert post(door, "native:regress", {**body, "signature_name": "regress"}) == {"results": [0.5, 4.0]}


def test_outputs_whose_names_end_in_bytes_are_base64(door: Gateway) -> None:
    body = {"signature_name": "images", "instances": [{"b64": "/9j/"}, {"b64": "aGVsbG8="}]}
    rows = [{"same_bytes": {"b64": "/9j/"}, "text": "3"}, {"same_bytes": {"b64": "aGVsbG8="}, "text": "5"}]
    assert post(door, "native:predict", body) == {"predictions": rows}


def test_several_inputs_in_both_formats(door: Gateway) -> None:
    first, second = {"a": [1, 2, 3], "b": [1.0, 0.5, 0.25]}, {"a": [0, 0, 1], "b": [1, 1, 1]}
    columns = {name: [first[name], second[name]] for name in first}
    found = post(door, "two:predict", {"inputs": columns})
    assert found["outputs"] == {"total": [[2.0, 2.5, 3.25], [1.0, 1.0, 2.0]], "sum": 11.75}
    status, found = curl(door, "/v1/models/two:predict", "-d", json.dumps({"instances": [first, second]}))
    assert status == 400, "one output is a scalar"
    assert "give 'inputs' in place of 'instances'" in found["error"]
