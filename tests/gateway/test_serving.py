"""TensorFlow Serving's REST API of a real pool, called with curl and requests as its users do."""

import base64
import gzip
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests

from gateway.running import Gateway, gateway
from pool.wire.gateway import GatewayLimits
from support.pool_process import STUBS, PoolProcess, pool_process, stub_config

MODELS = """
[[model]]
name = "rows"
path = "stub:rows"
[[model]]
name = "numbered"
path = "stub:files?{folder}"
versions = "all"
labels = {{ stable = 3 }}
"""


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolProcess]:
    """The stub models, and one with two versions, that each tell their number."""
    folder = tmp_path_factory.mktemp("numbered")
    for number in (3, 12):
        (folder / str(number)).mkdir()
        (folder / str(number) / "saved_model.pb").write_text(f"tell?n={number}")
    with pool_process(stub_config(models=STUBS + MODELS.format(folder=folder))) as running:
        yield running


@pytest.fixture(scope="module")
def door(pool: PoolProcess) -> Iterator[Gateway]:
    with gateway(pool.endpoint) as running:
        yield running


def curl(door: Gateway, path: str, *options: str) -> tuple[int, Any]:
    """The status and the JSON. `-d` sends what is no form with the content type of one."""
    command = ["curl", "--silent", "--show-error", "--max-time", "60", "--write-out", "\n%{http_code}", *options]
    done = subprocess.run([*command, door.url + path], capture_output=True, check=True, timeout=90)
    body, _, status = done.stdout.rpartition(b"\n")
    return int(status), json.loads(body)


def predict(door: Gateway, model: str, body: Any, **more: Any) -> tuple[int, Any]:
    answer = requests.post(f"{door.url}/v1/models/{model}:predict", json=body, timeout=60, **more)
    assert answer.headers["Content-Type"] == "application/json"
    return answer.status_code, answer.json()


def test_curl_sends_a_form_and_gets_predictions(door: Gateway) -> None:
    found = curl(door, "/v1/models/echo:predict", "-d", '{"instances": [1.0, 2, 5.0]}')
    assert found == (200, {"predictions": [1.0, 2.0, 5.0]})
    found = curl(door, "/v1/models/echo:predict", "-X", "POST", "-d", '{"inputs": [[1.0], [2.0]]}')
    assert found == (200, {"outputs": [[1.0], [2.0]]})


def test_nan_and_infinity_pass_both_ways(door: Gateway) -> None:
    status, found = curl(door, "/v1/models/echo:predict", "-d", '{"inputs": [NaN, Infinity, -Infinity, 0.2, 1e400]}')
    assert status == 400, "1e400 is no double"
    status, found = curl(door, "/v1/models/echo:predict", "-d", '{"inputs": [NaN, Infinity, -Infinity, 0.2]}')
    assert status == 200
    np.testing.assert_array_equal(found["outputs"], [float("nan"), float("inf"), -float("inf"), 0.2])


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("bool", [True, False]),
        ("int8", [-128, 127]),
        ("uint8", [0, 255]),
        ("int16", [-32768, 32767]),
        ("uint16", [0, 65535]),
        ("int32", [-(1 << 31), (1 << 31) - 1]),
        ("uint32", [0, (1 << 32) - 1]),
        ("int64", [-(1 << 63), (1 << 63) - 1]),
        ("uint64", [0, (1 << 64) - 1]),
        ("int4", [-8, 7]),
        ("float16", [0.5, -2.0]),
        ("bfloat16", [0.5, -2.0]),
        ("float32", [0.1, 3.4028235e38]),
        ("float64", [0.1, 1.7976931348623157e308]),
        ("string", ["", "é\u0000\U0001f600"]),
    ],
)
def test_each_dtype_comes_back_as_it_went(door: Gateway, dtype: str, values: list[Any]) -> None:
    rows = {"signature_name": dtype, "instances": [values, values]}
    assert predict(door, "echo", rows) == (200, {"predictions": [values, values]})
    column = {"signature_name": dtype, "inputs": {"x": values[0]}}
    assert predict(door, "echo", column) == (200, {"outputs": values[0]})


def test_bytes_go_as_base64(door: Gateway) -> None:
    sent = base64.b64encode(bytes(range(256))).decode()
    body = {"signature_name": "string", "instances": [{"b64": sent}, {"b64": "aGk="}, "hi"]}
    assert predict(door, "echo", body) == (200, {"predictions": [{"b64": sent}, "hi", "hi"]})


def test_several_outputs_have_names(door: Gateway) -> None:
    body = {"signature_name": "text", "instances": ["a", "bc"]}
    rows = [{"upper": "A", "length": 1}, {"upper": "BC", "length": 2}]
    assert predict(door, "rows", body) == (200, {"predictions": rows})
    body = {"signature_name": "text", "inputs": ["a", "bc"]}
    assert predict(door, "rows", body) == (200, {"outputs": {"upper": ["A", "BC"], "length": [1, 2]}})


def test_a_scalar_is_bare_in_a_column(door: Gateway) -> None:
    status, found = predict(door, "counter", {"signature_name": "add", "inputs": 0})
    assert status == 200
    total = found["outputs"]
    assert type(total) is int
    assert predict(door, "counter", {"signature_name": "add", "inputs": {"n": 2}}) == (200, {"outputs": total + 2})


def test_versions_and_labels_choose(door: Gateway) -> None:
    body = {"instances": [1.0]}
    for path, number in (("", 12), ("/versions/3", 3), ("/labels/stable", 3), ("@3", 3)):
        assert predict(door, f"numbered{path}", body) == (200, {"predictions": [float(number)]})
    for path in ("numbered/versions/4", "numbered/labels/canary", "echo/versions/2", "nothing"):
        status, found = predict(door, path, body)
        assert status == 404
        assert path.split("/")[0] in found["error"]


def test_a_model_without_versions_has_the_number_one(door: Gateway) -> None:
    assert predict(door, "echo/versions/1", {"instances": [1.0]}) == (200, {"predictions": [1.0]})


def state(number: int) -> dict[str, Any]:
    return {"version": str(number), "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}


def test_a_model_tells_the_state_of_its_versions(door: Gateway) -> None:
    assert curl(door, "/v1/models/numbered") == (200, {"model_version_status": [state(12), state(3)]})
    assert curl(door, "/v1/models/numbered/versions/3") == (200, {"model_version_status": [state(3)]})
    assert curl(door, "/v1/models/numbered/labels/stable") == (200, {"model_version_status": [state(3)]})
    assert curl(door, "/v1/models/echo") == (200, {"model_version_status": [state(1)]})
    assert curl(door, "/v1/models/echo/versions/1") == (200, {"model_version_status": [state(1)]})
    assert curl(door, "/v1/models/numbered/versions/4")[0] == 404


def test_metadata_tells_the_signatures(door: Gateway) -> None:
    status, found = curl(door, "/v1/models/numbered/versions/3/metadata")
    assert status == 200
    assert found["model_spec"] == {"name": "numbered", "signature_name": "", "version": "3"}
    float_rows = {"dim": [{"size": "-1", "name": ""}], "unknown_rank": False}
    assert found["metadata"]["signature_def"]["signature_def"]["serving_default"]["inputs"] == {
        "x": {"dtype": "DT_FLOAT", "tensor_shape": float_rows, "name": ""}
    }


@pytest.mark.parametrize(
    ("verb", "path"),
    [
        ("GET", "/v1/models/echo:predict"),
        ("PUT", "/v1/models/echo:predict"),
        ("POST", "/v1/models/echo"),
        ("GET", "/v1/foo"),
        ("POST", "/v1/models/echo/versions/x:predict"),
    ],
)
def test_a_wrong_verb_or_path_is_malformed(door: Gateway, verb: str, path: str) -> None:
    options = ("-X", verb, *(("-d", "{}") if verb != "GET" else ()))
    assert curl(door, path, *options) == (400, {"error": f"Malformed request: {verb} {path}"})


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"instances = [1, 2]",
        b'{"instances": [1, 2]',
        b'{"instances": [1, 2]}}',
        b'{"instances": [1, 2],}',
        b'{"instances": [Nan]}',
        b'{"instances": [NaN, 1e999]}',
        b'{"instances": ["\xff"]}',
        b'{"instances": ["\\ud800"]}',
        b'{"instances": [NaN, "\\ud800"]}',
        b"[" * 100_000,
        b"[NaN," * 100_000,
        b'{"instances": ' + b"[" * 200 + b"]" * 200 + b"}",
        b'{"a":' * 2000 + b"1" + b"}" * 2000,
        b'{"instances": [NaN, ' + b"9" * 5000 + b"]}",
        b'{"instances": [' + b"9" * 5000 + b"]}",
        b'{"instances": null}',
        b'{"instances": []}',
        b'{"instances": [[1], [1, 2]]}',
        b'{"instances": [1], "inputs": [1]}',
        b'{"instances": [{"x": 1}, {"y": 1}]}',
        b'{"signature_name": "no such", "instances": [1]}',
        b'{"signature_name": ["serving_default"], "instances": [1]}',
        b'"instances"',
        b"null",
    ],
)
def test_a_wrong_body_is_refused_and_the_next_request_is_answered(door: Gateway, body: bytes) -> None:
    with requests.Session() as session:
        answer = session.post(f"{door.url}/v1/models/echo:predict", data=body, timeout=60)
        assert answer.status_code == 400, answer.text
        assert list(answer.json()) == ["error"]
        assert len(answer.content) < 2000
        right = session.post(f"{door.url}/v1/models/echo:predict", json={"instances": [1]}, timeout=60)
        assert (right.status_code, right.json()) == (200, {"predictions": [1.0]})


def test_the_last_of_two_keys_counts(door: Gateway) -> None:
    found = curl(door, "/v1/models/echo:predict", "-d", '{"instances": [1], "instances": [2]}')
    assert found == (200, {"predictions": [2.0]})


def test_a_shape_that_the_model_does_not_take_is_refused_by_the_worker(door: Gateway) -> None:
    status, found = predict(door, "rows", {"signature_name": "double", "instances": [[1.0, 2.0]]})
    assert status == 400
    assert "model rows, signature double, input 'x': expected float32 [?], got float32 [1, 2]" in found["error"]


def test_an_error_of_the_model_is_a_server_error(door: Gateway) -> None:
    status, found = predict(door, "faults", {"signature_name": "fail", "inputs": "by intent"})
    assert status == 500
    assert "by intent" in found["error"]


def test_a_signature_for_predict_is_no_classifier(door: Gateway) -> None:
    for method in ("classify", "regress"):
        body = json.dumps({"signature_name": "string", "examples": [{"x": 1.0}]})
        status, found = curl(door, f"/v1/models/echo:{method}", "-d", body)
        assert status == 400
        assert f"not made for :{method}" in found["error"]


def test_a_compressed_request_is_read(door: Gateway, tmp_path: Path) -> None:
    packed = tmp_path / "body.gz"
    packed.write_bytes(gzip.compress(b'{"instances": [1.0]}'))
    options = ("--data-binary", f"@{packed}", "-H", "Content-Encoding: gzip", "--compressed")
    assert curl(door, "/v1/models/echo:predict", *options) == (200, {"predictions": [1.0]})


def test_a_large_body_comes_back_whole(door: Gateway) -> None:
    numbers = np.random.default_rng(7).normal(size=(200, 1000)).astype(np.float32)
    status, found = predict(door, "echo", {"instances": numbers.astype(np.float64).tolist()})
    assert status == 200
    np.testing.assert_array_equal(np.array(found["predictions"], np.float32), numbers)


def test_the_bound_of_json_holds_for_all_of_the_body(pool: PoolProcess) -> None:
    with gateway(pool.endpoint, limits=GatewayLimits(max_json_bytes=100)) as door:
        headers = {"Inference-Header-Content-Length": "1"}
        assert predict(door, "echo", {"instances": [1] * 10}, headers=headers)[0] == 200
        assert predict(door, "echo", {"instances": [1] * 100}, headers=headers)[0] == 413


def test_many_clients_each_get_their_own(door: Gateway) -> None:
    command = ["curl", "--silent", "--parallel", "--parallel-max", "16", "--max-time", "60"]
    for number in range(64):
        command += ["-d", json.dumps({"instances": [float(number)]}), f"{door.url}/v1/models/echo:predict", "--next"]
    done = subprocess.run(command[:-1], capture_output=True, check=True, timeout=90)
    text = done.stdout.decode()
    found = [json.loads(each + "}") for each in text.split("}") if each.strip()]
    assert sorted(each["predictions"][0] for each in found) == [float(number) for number in range(64)]
