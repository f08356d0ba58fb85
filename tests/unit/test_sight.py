"""What a client is told that may use some models only: nothing that could name another, whatever is added later.

An answer is made in which each text is a model's that it may not use. What of it is left has to be known here.
"""

import re
import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

from pool.serve.sight import explained_for, metrics_for, models_for, sees, status_for
from pool.serve.standing import Standing
from pool.wire.records import Metrics, ModelLoad, Slot, Status, Unloadable

OTHER = "hidden"
SOME, ALL = Standing("alice", frozenset({"mine"})), Standing("bob")

BESIDE = {f"slots.{which}.state" for which in ("replacement", "standby", "leaving")}
NAMELESS = {
    *("version", "instance", "endpoint", "state", "restart_needed", "answered"),
    *("slots.device", "slots.device_name", "slots.uuids", "slots.state", "slots.deaths"),
    *BESIDE,
}
"""Texts of a status that are left, and name no model."""


def full(kind: Any, **given: Any) -> Any:
    """A plain value of this kind with all that it can have. `given`: fields of it."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return {each.name: given.get(each.name, full(hints[each.name])) for each in fields(kind)}
    if origin is tuple:
        return [full(inner[0])]
    if origin is not None and issubclass(origin, Mapping) if isinstance(origin, type) else False:
        return {OTHER: full(inner[1])}
    if origin in (typing.Union, types.UnionType):
        return full(next(each for each in inner if each is not type(None)))
    return {str: OTHER, int: 1, float: 1.0, bool: True}[kind]


def texts(value: object, where: str = "") -> set[str]:
    """Where there are any."""
    if isinstance(value, dict):
        inside = {path for key, each in value.items() for path in texts(each, f"{where}.{key}".strip("."))}
        return inside | ({where} if OTHER in value else set())
    if isinstance(value, list):
        return {path for each in value for path in texts(each, where)}
    return {re.sub(rf"\.{OTHER}$", "", where)} if isinstance(value, str) and OTHER in value else set()


def test_no_text_of_a_status_is_left_that_could_name_a_model() -> None:
    status = full(Status)
    assert texts(status) > NAMELESS
    assert texts(status_for(SOME, status)) == NAMELESS
    assert texts(status) > NAMELESS, "the answer to others is as it was"


def test_nor_of_metrics() -> None:
    told = metrics_for(SOME, full(Metrics))
    assert texts(told) == {f"status.{path}" for path in NAMELESS}


@pytest.mark.parametrize("standing", [ALL, Standing("carol", None, frozenset({"load"}))])
def test_who_may_use_all_is_told_all(standing: Standing) -> None:
    status, metrics = full(Status), full(Metrics)
    assert status_for(standing, status) is status
    assert metrics_for(standing, metrics) is metrics
    assert models_for(standing, [{"name": OTHER}]) == [{"name": OTHER}]


def test_what_is_its_own_is_told() -> None:
    """Of a model's versions too, each of which is a model by itself."""
    slot = full(Slot, models=["mine@2", "mine", OTHER], versions={"mine": 3, OTHER: 4})
    loads = [full(ModelLoad, name=name) for name in ("mine", "mine@2", OTHER)]
    accounts = [{"name": "alice"}, {"name": "bob"}]
    left_out = [full(Unloadable, model="mine"), full(Unloadable)]
    status = full(Status, slots=[slot, full(Slot)], models=loads, accounts=accounts, unloadable=left_out)
    told = status_for(SOME, status)
    assert [each["models"] for each in told["slots"]] == [["mine@2", "mine"], []], "a slot is found by its place"
    assert told["slots"][0]["versions"] == {"mine": 3}
    assert [each["name"] for each in told["models"]] == ["mine", "mine@2"]
    assert told["accounts"] == [{"name": "alice"}]
    assert [each["model"] for each in told["unloadable"]] == ["mine"]
    assert told["rolling_update"]["failure"], "that something failed is no name"


def test_a_model_that_begins_with_its_name_is_another() -> None:
    assert sees(SOME, "mine@7")
    assert not sees(SOME, "mine2")
    assert not sees(SOME, "")
    assert not sees(Standing("nobody", frozenset()), "mine")


def test_it_may_ask_what_became_of_jobs_of_its_models() -> None:
    jobs = [{"job": 1, "model": "mine@2"}, {"job": 2, "model": OTHER}]
    recent = {"jobs": jobs, "deaths": [{"reason": OTHER}]}
    assert explained_for(SOME, recent) == {"jobs": jobs[:1], "deaths": []}
    assert explained_for(SOME, jobs[0]) == jobs[0]
    assert explained_for(SOME, jobs[1]) is None
    assert explained_for(ALL, recent) is recent
