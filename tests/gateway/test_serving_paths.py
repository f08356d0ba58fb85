"""Verbs and paths, and what is told of models: metadata and states."""

from typing import Any

import pytest

from gateway.told import model, signature, slot
from pool.gateway.http import Refused, Request
from pool.gateway.serving.metadata import metadata
from pool.gateway.serving.paths import Asked, Method, asked
from pool.gateway.serving.states import states


@pytest.mark.parametrize(
    ("verb", "path", "found"),
    [
        ("POST", "/v1/models/m:predict", Asked(Method.PREDICT, "m", None)),
        ("POST", "/v1/models/m/versions/0007:classify", Asked(Method.CLASSIFY, "m", 7)),
        ("POST", "/v1/models/m/labels/stable%20one:regress", Asked(Method.REGRESS, "m", "stable one")),
        ("POST", "/v1/models/m/labels/7:regress", Asked(Method.REGRESS, "m", "7")),
        ("GET", "/v1/models/m", Asked(Method.STATUS, "m", None)),
        ("GET", "/v1/models/m/versions/9223372036854775807", Asked(Method.STATUS, "m", (1 << 63) - 1)),
        ("GET", "/v1/models/a%2Fb/metadata", Asked(Method.METADATA, "a/b", None)),
        ("GET", "/v1/models/metadata", Asked(Method.STATUS, "metadata", None)),
        ("GET", "/v1/models/m/labels/stable/metadata", Asked(Method.METADATA, "m", "stable")),
    ],
)
def test_a_path_says_what_is_asked(verb: str, path: str, found: Asked) -> None:
    assert asked(Request(verb, path)) == found


@pytest.mark.parametrize(
    ("verb", "path"),
    [
        ("GET", "/v1/foo"),
        ("POST", "/v1/foo"),
        ("GET", "/v1"),
        ("GET", "/v1/models/m/"),
        ("GET", "/v1/models/debug/m"),
        ("POST", "/v1/models"),
        ("POST", "/v1/models/m"),
        ("POST", "/v1/models/m:predic"),
        ("POST", "/v1/models/m:predict/"),
        ("POST", "/v1/models/:predict"),
        ("POST", "/v1/models/m:predict\n"),
        ("GET", "/v1/models/m:predict"),
        ("GET", "/v1/models/m/version/50:predict"),
        ("POST", "/v1/models/m/version/50:regress"),
        ("POST", "/v1/models/m/versions/HELLO:regress"),
        ("POST", "/v1/models/m/versions/٣:regress"),
        ("POST", "/v1/models/m/versions/-1:regress"),
        ("POST", "/v1/models/m/versions/50/labels/x:regress"),
        ("POST", "/v1/models/m/metadata"),
        ("PUT", "/v1/models/m:predict"),
        ("HEAD", "/v1/models/m"),
        ("DELETE", "/v1/models/m"),
        ("OPTIONS", "/v1/models/m:predict"),
    ],
)
def test_any_other_verb_or_path_is_malformed(verb: str, path: str) -> None:
    with pytest.raises(Refused) as error:
        asked(Request(verb, path))
    assert (error.value.status, error.value.text) == (400, f"Malformed request: {verb} {path}")


def test_a_malformed_path_is_quoted_in_part() -> None:
    with pytest.raises(Refused, match="Malformed") as error:
        asked(Request("GET", "/v1/" + "x" * 100_000))
    assert len(error.value.text) < 1100


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/v1/models", "Missing model name"),
        ("/v1/models/m/versions/9223372036854775808", "Failed to convert version"),
        (f"/v1/models/m/versions/{'9' * 5000}", "Failed to convert version"),
        ("/v1/models/%FF", "not UTF-8"),
        ("/v1/models/m/labels/%FF", "not UTF-8"),
    ],
)
def test_a_name_or_number_that_cannot_be_is_refused(path: str, says: str) -> None:
    with pytest.raises(Refused, match=says) as error:
        asked(Request("GET", path))
    assert error.value.status == 400
    assert len(error.value.text) < 200


def tensor(dtype: str, name: str, shape: list[int] | None) -> dict[str, Any]:
    axes = [{"size": str(axis), "name": ""} for axis in shape or []]
    return {"dtype": dtype, "tensor_shape": {"dim": axes, "unknown_rank": shape is None}, "name": name}


def test_metadata_is_what_protobuf_prints() -> None:
    takes = signature({"x": ("float32", (-1, 1)), "s": ("string", None)}, {"y": ("bfloat16", ())}, "some/method")
    assert metadata("m", model({"serving_default": takes}, version=123), None) == {
        "model_spec": {"name": "m", "signature_name": "", "version": "123"},
        "metadata": {
            "signature_def": {
                "signature_def": {
                    "serving_default": {
                        "inputs": {"x": tensor("DT_FLOAT", "x:0", [-1, 1]), "s": tensor("DT_STRING", "s:0", None)},
                        "outputs": {"y": tensor("DT_BFLOAT16", "y:0", [])},
                        "method_name": "some/method",
                        "defaults": {},
                    }
                }
            }
        },
    }


@pytest.mark.parametrize(
    ("made", "asked_for", "number"),
    [
        (model({}), None, "1"),
        (model({}, versions=(3, 4)), None, "4"),
        (model({}, versions=(3, 4)), 3, "3"),
        (model({}, version=7, labels=("stable",)), "stable", "7"),
    ],
)
def test_metadata_has_the_version_that_was_asked_for(made: Any, asked_for: Any, number: str) -> None:
    assert metadata("m", made, asked_for)["model_spec"]["version"] == number


def state(number: int, word: str = "AVAILABLE", why: str = "") -> dict[str, Any]:
    status = {"error_code": "UNKNOWN" if why else "OK", "error_message": why}
    return {"version": str(number), "state": word, "status": status}


def test_all_versions_are_listed_the_newest_first() -> None:
    three, five = model({}, version=3, default=False), model({}, version=5)
    assert states({"": [three, five]}, {}, None) == {"model_version_status": [state(5), state(3)]}
    assert states({"": [three]}, {}, 3) == {"model_version_status": [state(3)]}


def test_a_model_between_two_versions_has_both() -> None:
    changing = model({}, versions=(3, 4))
    assert states({"": [changing]}, {}, None) == {"model_version_status": [state(4), state(3)]}
    assert states({"": [changing]}, {}, 3) == {"model_version_status": [state(3)]}


def test_a_model_without_versions_has_the_number_one() -> None:
    assert states({"": [model({})]}, {}, None) == {"model_version_status": [state(1)]}


@pytest.mark.parametrize(
    ("slots", "found"),
    [
        ([slot(0, "LOADING"), slot(1, "STARTING")], state(1, "LOADING")),
        ([slot(0, "LOADING"), slot(1, "BACKOFF", "died")], state(1, "LOADING", "slot 1 is BACKOFF: died")),
        ([slot(0, "FATAL", "no file"), slot(1, "FATAL", "no file")], state(1, "END", "slot 0 is FATAL: no file")),
        ([slot(0, "FATAL", "no file"), slot(1, "LOADING")], state(1, "LOADING", "slot 0 is FATAL: no file")),
        ([slot(2, "READY")], state(1, "START")),
    ],
)
def test_a_model_that_is_not_served_says_how_far_it_is(slots: Any, found: Any) -> None:
    waits = model({}, slots=(0, 1), ready=())
    assert states({"": [waits]}, {"": slots}, None) == {"model_version_status": [found]}


def test_a_model_that_was_unloaded_says_so_while_a_worker_has_it() -> None:
    leaves = model({}, ready=(), leaving=True)
    assert states({"": [leaves]}, {"": [slot(0, "READY")]}, None) == {"model_version_status": [state(1, "UNLOADING")]}
