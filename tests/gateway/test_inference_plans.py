"""A header that comes again is not read again, and a job costs a known number of calls."""

import json
import sys
from collections.abc import Coroutine
from types import FrameType
from typing import Any

import numpy as np
import pytest

from gateway.fakes import Echo, asked, infer, result_of
from pool.client.result import JobResult
from pool.gateway.http import Request
from pool.gateway.inference import Inference
from pool.gateway.inference.plans import MOST, MOST_HEADER_BYTES

FOUR = b"\0\0\x80?"
MOST_CALLS, MOST_PYTHON = 30, 11


def request(head: str, path: str = "/v2/models/m/infer", behind: bytes = FOUR) -> Request:
    return infer(head.encode() + behind, len(head.encode()), path)


def head(*, first: str = "", last: str = "", name: str = "x", **more: Any) -> str:
    """A header of one number; `first` and `last`: further members, as they are to be written."""
    tensor = {"name": name, "datatype": "FP32", "shape": [1], "parameters": {"binary_data_size": 4}, **more}
    return f'{{{first}"parameters":{{"binary_data_output":true}},"inputs":[{json.dumps(tensor)}]{last}}}'


def plans(inference: Inference) -> int:
    return len(inference._infer._plans)


def told_id(inference: Inference, text: str) -> Any:
    response, body = asked(inference, Echo(), request(text))
    assert response.status == 200, body
    length = int(dict(response.headers)["Inference-Header-Content-Length"])
    assert body[length:] == FOUR
    return json.loads(body[:length]).get("id")


@pytest.mark.parametrize("space", ["", " "])
def test_an_id_neither_hides_a_plan_nor_leaves_one(space: str) -> None:
    inference = Inference()
    for number in range(3 * MOST):
        assert told_id(inference, head(first=f'{space}"id"{space}:{space}"{number}",{space}')) == str(number)
    assert told_id(inference, head()) is None
    assert plans(inference) == 1, "all of them are one header"


IDS = ["", "é", '"', "\\", '","inputs":[],"x":"', "a" * 10_000, "\n", "}", "\U0001f600", "\x00"]


@pytest.mark.parametrize("own_id", IDS)
@pytest.mark.parametrize("ascii_only", [True, False])
def test_an_id_may_be_any_text(own_id: str, ascii_only: bool) -> None:
    inference = Inference()
    written = json.dumps(own_id, ensure_ascii=ascii_only)
    assert told_id(inference, head(first=f'"id":{written},')) == own_id
    assert plans(inference) == 1
    assert told_id(inference, head(last=f',"id":{written}')) == own_id, "wherever it stands"
    assert plans(inference) == 1, "it is part of that header, which will not come again"


def test_the_last_of_two_ids_counts_as_in_json() -> None:
    assert told_id(Inference(), head(first='"id":"a",', last=',"id":"b"')) == "b"


def test_a_plan_is_of_its_path_and_its_header() -> None:
    inference, client = Inference(), Echo()
    for path in ("/v2/models/m/infer", "/v2/models/n/infer", "/v2/models/m/versions/3/infer"):
        for name in "xy":
            for value in (1.0, 2.0):
                array = np.array([value], "f4")
                _, body = asked(inference, client, request(head(name=name), path, array.tobytes()))
                assert body.endswith(array.tobytes())
                model, inputs, options = client.jobs[-1]
                assert (model, inputs, options) == (path.split("/")[3], {name: array}, _options(path))
    assert plans(inference) == 6


def _options(path: str) -> dict[str, Any]:
    return {"version": 3} if "versions" in path else {}


def test_plans_are_bounded_and_what_is_used_stays() -> None:
    inference, client = Inference(), Echo()
    asked(inference, client, request(head(name="hot")))
    [hot] = inference._infer._plans._young.values()
    for number in range(5 * MOST):
        asked(inference, client, request(head(name=str(number))))
        asked(inference, client, request(head(name="hot")))
    assert plans(inference) <= 2 * MOST
    assert any(plan is hot for plan in inference._infer._plans._young.values()), "the same one all the time"


def test_what_will_not_come_again_leaves_no_plan() -> None:
    inference, client = Inference(), Echo()
    comment = f',"comment":"{"x" * MOST_HEADER_BYTES}"'
    with_data = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1.0]}]}
    for text, behind in ((head(last=comment), FOUR), (json.dumps(with_data), b"")):
        for _ in range(2):
            response, _ = asked(inference, client, request(text, behind=behind))
            assert response.status == 200
    assert asked(inference, client, infer(json.dumps(with_data).encode(), None))[0].status == 200
    long_path = f"/v2/models/{'%6d' * MOST_HEADER_BYTES}/infer"
    assert asked(inference, client, request(head(), long_path))[0].status == 400, "the client's bound of names"
    assert plans(inference) == 0


def test_an_answer_of_another_kind_has_its_own_head() -> None:
    inference, client = Inference(), Echo()
    for version in (None, 3, None):
        for array in (np.zeros((2, 2), "f4"), np.zeros(4, "f4"), np.zeros(4, "i4"), np.array([b"ab"], object)):
            for name in "xy":
                client.version, client.outputs = version, {name: array}
                response, body = asked(inference, client, request(head()))
                length = int(dict(response.headers)["Inference-Header-Content-Length"])
                found = json.loads(body[:length])
                [output] = found["outputs"]
                assert found["model_version"] == str(version or 1)
                assert (output["name"], output["shape"]) == (name, list(array.shape))
                assert output["parameters"]["binary_data_size"] == len(body) - length


@pytest.mark.parametrize(
    ("parameters", "options"),
    [
        ({}, {}),
        ({"priority": 0}, {}),
        ({"priority": 1}, {"priority": 100}),
        ({"priority": 100}, {"priority": 1}),
        ({"priority": 201}, {"priority": -100}),
        ({"priority": 2**64 - 1}, {"priority": -100}),
        ({"timeout": 0}, {}),
        ({"timeout": 1_500_000}, {"timeout": 1.5}),
        ({"signature": "predict"}, {"signature": "predict"}),
        ({"sequence_id": 0, "sequence_start": False}, {}),
        ({"sequence_id": ""}, {}),
        ({"a_models_own": 3.5, "headers": "x"}, {}),
    ],
)
def test_parameters_are_options_of_the_job(parameters: dict[str, Any], options: dict[str, Any]) -> None:
    client = Echo()
    asked_for = {"parameters": parameters, "inputs": [], "outputs": []}
    response, body = asked(Inference(), client, infer(json.dumps(asked_for).encode(), None))
    assert response.status == 200, body
    assert client.jobs == [("m", {}, options)]


class Prepared(Echo):
    """Costs one call itself."""

    result = result_of({"x": np.ones(1, "f4")})

    async def run(self, *_: Any, **__: Any) -> JobResult:
        return self.result


def test_a_job_costs_few_calls() -> None:
    """Of Python and C together, without the client's own. It is a count, so it holds on any machine."""
    inference, client = Inference(), Prepared()
    known = request(head(first='"id":"1",'))
    asked(inference, client, known)
    again = request(head(first='"id":"2",'))
    python = c_calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal python, c_calls
        python += event == "call"
        c_calls += event == "c_call"

    job: Coroutine[Any, Any, Any] = inference.answer(again, client)

    def run() -> Any:
        try:
            job.send(None)
        except StopIteration as ended:  # it waits for nothing
            return ended.value

    sys.setprofile(count)
    try:
        response = run()
    finally:
        sys.setprofile(None)
    assert response.status == 200
    assert 0 < python <= MOST_PYTHON, python
    assert 0 < python + c_calls <= MOST_CALLS, c_calls
