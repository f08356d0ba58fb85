"""Whatever a header says: it is answered or refused, never a failure of the gateway, and the next request is served."""

import copy
import json
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.fakes import Echo, asked, infer
from pool.gateway.inference import Inference

GOOD: dict[str, Any] = {
    "id": "7",
    "parameters": {"binary_data_output": True, "priority": 1, "timeout": 5},
    "inputs": [
        {"name": "x", "datatype": "FP32", "shape": [2, 1], "parameters": {"binary_data_size": 8}},
        {"name": "s", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 6}},
        {"name": "j", "datatype": "INT64", "shape": [2], "data": [1, 2]},
    ],
    "outputs": [{"name": "x"}, {"name": "j", "parameters": {"binary_data": False}}],
}
BEHIND = np.ones(2, "f4").tobytes() + b"\x02\0\0\0ab"
KEYS = ["name", "datatype", "shape", "data", "parameters", "binary_data_size", "inputs", "outputs", "id", "signature"]
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=3),
    st.sampled_from(["FP16", "BOOL", "BYTES", "x", "j", 2**31, 2**62, 2**63, 10**400]),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
    max_leaves=8,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path]
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        found += places(member, (*path, key))
    return found


PLACES = places(GOOD)


def put(told: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A place that is gone by now changes nothing."""
    if not path:
        return value
    inside = told
    for key in path[:-1]:
        if not _has(inside, key):
            return told
        inside = inside[key]
    if _has(inside, path[-1]):
        inside[path[-1]] = value
    return told


def _has(inside: Any, key: Any) -> bool:
    if isinstance(inside, list):
        return type(key) is int and key < len(inside)
    return isinstance(inside, dict) and key in inside


def answer(inference: Inference, body: bytes, length: int | None) -> tuple[int, bytes]:
    response, said = asked(inference, Echo(), infer(body, length))
    if response.status != 200:
        assert json.loads(said).keys() == {"error"}
    return response.status, said


def test_what_is_changed_is_answered_at_first() -> None:
    head = json.dumps(GOOD).encode()
    status, said = answer(Inference(), head + BEHIND, len(head))
    assert status == 200
    assert said.endswith(BEHIND[:8])


@settings(max_examples=400)
@given(
    st.lists(st.tuples(st.sampled_from(PLACES), VALUES), min_size=1, max_size=3), st.binary(max_size=3), st.booleans()
)
def test_a_header_with_other_values_never_fails(
    changes: list[tuple[tuple[Any, ...], Any]], more: bytes, is_all_json: bool
) -> None:
    told: Any = copy.deepcopy(GOOD)
    for path, value in changes:
        told = put(told, path, value)
    head = json.dumps(told).encode()
    inference = Inference()
    body = head if is_all_json else head + BEHIND + more
    assert answer(inference, body, None if is_all_json else len(head))[0] in (200, 400, 501)
    good = json.dumps(GOOD).encode()
    assert answer(inference, good + BEHIND, len(good))[0] == 200


@settings(max_examples=300)
@given(st.data())
def test_bytes_that_are_lost_or_changed_never_fail(data: st.DataObject) -> None:
    head = json.dumps(GOOD).encode()
    body = bytearray(head + BEHIND)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
        if not body:
            return
    length = data.draw(st.one_of(st.just(len(head)), st.integers(0, len(head) + 20)))
    inference = Inference()
    assert answer(inference, bytes(body), length)[0] in (200, 400, 404, 501)  # 404: its length 0 asks for the model
    assert answer(inference, head + BEHIND, len(head))[0] == 200
