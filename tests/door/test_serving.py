"""TensorFlow Serving's REST API in front of stub models."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from support.doors import RunningDoor, start_door
from support.pools import until

pytestmark = pytest.mark.door

RIGHT: dict[str, list[Any]] = {
    "bool": [True, False],
    "float32": [0.1, 1e-07, 9000000.0, 555557.5],
    "float64": [0.1, 1.7976931348623157e308],
    "string": ["", "é\u0000\U0001f600"],
}
RIGHT |= {name: [0.5, -2.0] for name in ("float16", "bfloat16")}
RIGHT |= {f"int{bits}": [-(1 << bits - 1), (1 << bits - 1) - 1] for bits in (4, 8, 16, 32, 64)}
RIGHT |= {f"uint{bits}": [0, (1 << bits) - 1] for bits in (8, 16, 32, 64)}
WRONG: dict[str, list[Any]] = {
    "float32": [True, "1", None, {"b64": "AAAA"}, [1], 1e39],
    "float64": [10**400],
    "int32": [1.0, True, 1 << 31],
    "uint8": [-1, 256],
    "uint64": [-1, 0.5],
    "bool": [1, "true"],
    "string": [1, None, {"b64": "a"}, {"b64": "AAAA", "more": 1}, "\ud800"],
}
NO_REQUESTS = """{"instances": [1, 2] | {"instances": [1]}} | null | ["instances"] | {} | {"instances": null} |
    {"instances": []} | {"instances": {"x": 1}} | {"instances": [[1], [1, 2]]} | {"instances": [1], "inputs": [1]} |
    {"instances": [{"x": 1}, {"y": 1}]} | {"instances": [{"x": 1}, 1]} | {"instances": [1, {"x": 1}]} |
    {"inputs": null} | {"inputs": {"y": 1}} | {"inputs": [Infinity, 1e400]} | {"inputs": [nan]} |
    {"signature_name": "no", "inputs": [1]} | {"signature_name": [1], "inputs": [1]} |
    {"signature_name": "\\ud800", "inputs": [1]}"""
DEEP = b"[" * 900 + b"]" * 900 + b"}"
BOMBS = [b"", b'{"inputs": ["\xff"]}', b"[" * 100_000, b'{"inputs": ' + DEEP, b'{"signature_name": ' + DEEP]
BOMBS += [b'{"inputs": [' + b"9" * 5000 + b"]}", b'{"inputs": [' + b"9" * 400 + b".0]}"]
BOMBS += [json.dumps({"inputs": ["a" * 1_000_000] + [1] * 1_000_000}).encode()]  # 4 TB, if numpy makes texts of it
MALFORMED = """GET /v1/models/double:predict | PUT /v1/models/double:predict | POST /v1/models/double | GET /v1/foo |
    POST /v1/models/double/metadata | DELETE /v1/models/double | GET /v1/models/double/ | POST /v1/models/x:predic |
    POST /v1/models/double/versions/x:predict | POST /v1/models/double/versions/3/labels/x:predict"""


@pytest.fixture(scope="module")
def door(door: RunningDoor) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=door.url) as client:
        yield client


def predict(door: httpx.Client, model: str, body: Any) -> tuple[int, Any]:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = door.post(f"/v1/models/{model}:predict", content=text, timeout=60)
    assert answer.headers["content-type"] == "application/json"
    return answer.status_code, answer.json()


def refusal(door: httpx.Client, model: str, body: Any) -> str:
    status, answer = predict(door, model, body)
    assert (status, list(answer)) == (400, ["error"])
    assert len(answer["error"]) < 500
    return answer["error"]


def get(door: httpx.Client, path: str) -> tuple[int, Any]:
    answer = door.get(f"/v1/models{path}")
    return answer.status_code, answer.json()


def test_rows_and_columns(door):
    assert predict(door, "float32", {"instances": [1.0, 2, 5.0]}) == (200, {"predictions": [1.0, 2.0, 5.0]})
    assert predict(door, "double", {"inputs": {"x": [[1.0], [2.0]]}}) == (200, {"outputs": [[2.0], [4.0]]})
    assert predict(door, "double", {"instances": [{"x": [1]}, {"x": [2]}]}) == (200, {"predictions": [[2.0], [4.0]]})
    assert predict(door, "float32", {"inputs": {"x": 2.5, "more": None}}) == (200, {"outputs": 2.5})
    assert predict(door, "float32", b'{"instances": [1], "instances": [2]}') == (200, {"predictions": [2.0]})


def test_values_lack_the_last_axis_of_one_that_a_model_declares(door):
    assert predict(door, "double", {"instances": [1.0, 2.0]}) == (200, {"predictions": [2.0, 4.0]})
    assert predict(door, "double", {"inputs": [1.0, 2.0]}) == (200, {"outputs": [2.0, 4.0]})
    assert "expected float32 [?, 1], got float32 [1, 2]" in refusal(door, "double", {"instances": [[1.0, 2.0]]})


@pytest.mark.parametrize("dtype", RIGHT)
def test_each_dtype_comes_back_as_it_went(door, dtype):
    values = RIGHT[dtype]
    assert predict(door, dtype, {"instances": [values, values]}) == (200, {"predictions": [values, values]})
    assert predict(door, dtype, {"inputs": {"x": values[0]}}) == (200, {"outputs": values[0]})
    assert predict(door, dtype, {"inputs": [[], []]}) == (200, {"outputs": [[], []]})


@pytest.mark.parametrize("dtype", WRONG)
def test_a_value_of_another_kind_is_refused(door, dtype):
    right = RIGHT[dtype][0]
    for value in WRONG[dtype]:
        refusal(door, dtype, {"instances": [[right, right], [right, value]]})


def test_nan_and_infinity_are_bare_words(door):
    answer = door.post("/v1/models/float32:predict", content=b'{"inputs": [NaN, Infinity, -Infinity, 0.2]}')
    assert answer.content == b'{"outputs":[NaN,Infinity,-Infinity,0.2]}'


def test_bytes_are_base64(door):
    sent = base64.b64encode(bytes(range(256))).decode()
    body = {"instances": [{"b64": sent}, {"b64": "aGk"}, {"b64": " aG\nk="}, "hi"]}
    assert predict(door, "string", body) == (200, {"predictions": [{"b64": sent}, "hi", "hi", "hi"]})
    assert predict(door, "string", {"inputs": {"b64": "aGk="}}) == (200, {"outputs": "hi"})


def test_a_wrong_body_is_refused_and_the_next_request_is_answered(door):
    for body in [*BOMBS, *map(str.encode, NO_REQUESTS.split(" |"))]:
        refusal(door, "float32", body)
        assert predict(door, "float32", {"instances": [1]}) == (200, {"predictions": [1.0]}), body


def test_versions_and_labels_choose(door):
    for path, number in (("", 12), ("/versions/3", 3), ("/versions/0003", 3), ("/labels/old", 3)):
        assert predict(door, f"numbered{path}", {"instances": [1.0]}) == (200, {"predictions": [float(number)]})
    assert predict(door, "double/versions/1", {"instances": [1.0]}) == (200, {"predictions": [2.0]})
    for path in ("numbered/versions/4", "numbered/labels/canary", "double/versions/2", "nothing"):
        assert predict(door, path, {"instances": [1.0]})[0] == 404


def states(*numbers: int, state: str = "AVAILABLE") -> tuple[int, Any]:
    health = {"error_code": "OK", "error_message": ""}
    return 200, {"model_version_status": [{"version": str(n), "state": state, "status": health} for n in numbers]}


def test_a_model_tells_the_state_of_its_versions(door):
    assert get(door, "/numbered") == states(12, 3)
    assert get(door, "/numbered/versions/3") == get(door, "/numbered/labels/old") == states(3)
    assert get(door, "/double") == get(door, "/double/versions/1") == states(1)
    assert get(door, "/numbered/versions/4") == (404, {"error": "Could not find version 4 of model numbered"})
    assert get(door, "/nothing") == (404, {"error": "Could not find any versions of model nothing"})


def test_a_model_that_is_being_loaded_or_cannot_be_says_so(start_pool):
    models = [f'{{name = "{each}", path = "stub:double?load={each}"}}' for each in ("fail", "hang")]
    config = f'pool.devices = ["cpu"]\nmodel = [{", ".join(models)}]'
    with start_door(start_pool(config, wait=False)) as running, httpx.Client(base_url=running.url) as door:
        until(lambda: get(door, "/fail")[1].get("model_version_status", [{}])[0].get("state") == "END", "the failure")
        assert get(door, "/hang") == states(1, state="LOADING")
        answer = door.post("/v1/models/hang:predict", json={"instances": [1.0]})
        assert (answer.status_code, list(answer.json())) == (503, ["error"])
        assert answer.headers["retry-after"]
        (failed,) = get(door, "/fail")[1]["model_version_status"]
        assert failed["version"] == "1"
        assert "told to fail" in failed["status"]["error_message"]


def test_metadata_tells_the_signatures(door):
    axes = {"dim": [{"size": "-1", "name": ""}, {"size": "1", "name": ""}], "unknown_rank": False}
    info = {"dtype": "DT_FLOAT", "tensor_shape": axes, "name": ""}
    signature = {"inputs": {"x": info}, "outputs": {"y": info}}
    signature |= {"method_name": "tensorflow/serving/predict", "defaults": {}}
    spec = {"name": "numbered", "signature_name": "", "version": "3"}
    told = {"model_spec": spec, "metadata": {"signature_def": {"signature_def": {"serving_default": signature}}}}
    assert get(door, "/numbered/versions/3/metadata") == (200, told)
    assert '"dtype":"DT_STRING"' in door.get("/v1/models/string/metadata").text


def test_a_wrong_verb_or_path_is_malformed(door):
    for verb, path in map(str.split, MALFORMED.split(" |")):
        answer = door.request(verb, path)
        assert (answer.status_code, answer.json()) == (400, {"error": f"Malformed request: {verb} {path}"})
    assert get(door, "") == (400, {"error": "Missing model name in request."})
    for number in (str(1 << 63), "9" * 5000):
        error = f"Failed to convert version: {number:.40} to numeric."
        assert get(door, f"/double/versions/{number}") == (400, {"error": error})


def test_errors_of_models_and_signatures_have_their_status(door):
    status, answer = predict(door, "double", {"instances": [-1.0]})
    assert (status, "does not bear" in answer["error"]) == (500, True)
    assert predict(door, "complex64", {"inputs": [1.0]})[0] == 501
