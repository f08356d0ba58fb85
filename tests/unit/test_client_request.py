"""A job's options: in a SUBMIT, or `InvalidInput` says what would be right."""

from typing import Any

import numpy as np
import pytest

from pool import Client
from pool.client.request import Request, request_for
from pool.errors import InvalidInput
from pool.wire import client_messages as wire
from pool.wire.calls import NAMES_BYTES, Names
from pool.wire.codec import pack, unpack
from pool.wire.frames import decode, encode

DEFAULTS: dict[str, Any] = {"signature": None, "outputs": None, "timeout": None, "priority": 0, "device": None}


def request(model: Any = "m", **options: Any) -> Request:
    return request_for(model, **{**DEFAULTS, **options})


def test_defaults() -> None:
    assert request() == Request("m", None, None, None, 0, None)


@pytest.mark.parametrize(
    ("given", "sent"),
    [(None, None), (0, "0"), (3, "3"), (np.int64(2), "2"), ("gpu:0", "gpu:0"), ("slot:3", "slot:3"), ("7", "7")],
)
def test_devices_are_names(given: Any, sent: str | None) -> None:
    assert request(device=given).device == sent


@pytest.mark.parametrize(
    ("given", "sent"), [(None, None), (0, 0), (3, 3), (np.int64(2), 2), ("stable", "stable"), ("7", "7")]
)
def test_versions_are_numbers_or_labels(given: Any, sent: int | str | None) -> None:
    asked = request_for("m", **DEFAULTS, version=given)
    assert asked.version == sent
    assert type(asked.version) is type(sent)
    names = Names("m", None, None, None, asked.version, counted=False)
    assert unpack(Names, pack(names)).version == sent


@pytest.mark.parametrize("bad", ["", -1, 2**63, 1.5, True, b"3", "\ud800", "x" * 1001, [3]])
def test_what_is_no_version_is_refused(bad: Any) -> None:
    with pytest.raises(InvalidInput, match=r"model m: (version is|a version's label)"):
        request_for("m", **DEFAULTS, version=bad)


@pytest.mark.parametrize("priority", [-100, 0, 100, np.int8(5)])
def test_priorities_are_plain_integers(priority: Any) -> None:
    sent = request(priority=priority).priority
    assert type(sent) is int
    assert sent == priority


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"signature": "\ud800"}, "model m: a signature's name is not valid unicode"),
        ({"signature": 7}, "model m: a signature's name is a str, not int"),
        ({"model": "\ud800"}, "a model's name is not valid unicode"),
        ({"model": b"m"}, "a model's name is a str, not bytes"),
        ({"model": "m" * 1001}, "at most 1000"),
        ({"outputs": "y"}, "model m: outputs is a list of names, not the str 'y'"),
        ({"outputs": 5}, "model m: outputs is a list of names, not the int 5"),
        ({"outputs": [b"y"]}, "model m: an output's name is a str, not bytes"),
        ({"outputs": ["\udcff"]}, "model m: an output's name is not valid unicode"),
        ({"outputs": [f"{n:0500}" for n in range(100)]}, "100 outputs are more than one job can name"),
        *(({"timeout": bad}, "timeout is") for bad in ("5", [1], -1, float("nan"), float("inf"), 10**400, True)),
        *(
            ({"priority": bad}, "priority is .*give an integer, higher first, from -100 to 100")
            for bad in (101, -101, 1.0, "1", None, True, 10**400, np.zeros(2, int))
        ),
        *(
            ({"device": bad}, 'device is .*give a name of `pool status`, such as "gpu:0"')
            for bad in ("", -1, 1.0, True, b"gpu:0", ["gpu:0"], 10**400)
        ),
        ({"device": "\ud800"}, "a device's name is not valid unicode"),
        ({"device": "d" * 1001}, "a device's name has 1001 characters"),
    ],
)
def test_what_no_job_can_have_is_the_callers_mistake(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidInput, match=complaint) as caught:
        request(**options)
    assert "\n" not in str(caught.value)


def test_the_longest_request_is_one_that_the_pool_reads() -> None:
    longest = "\U0001f600" * 1000
    options = {**DEFAULTS, "signature": longest, "outputs": ["y" * 1000] * 32, "device": longest}
    asked = request_for(longest, **options, version=longest)
    names = Names(asked.model, asked.signature, asked.outputs, asked.device, asked.version, counted=True)
    assert len(pack(names)) < NAMES_BYTES


def test_more_rows_and_attempts_than_can_travel_are_as_many_as_can() -> None:
    """The pool takes fewer of either, and says so."""
    submit = wire.Submit(1, 1, 1 << 40, 1.0, attempts=1 << 40)
    found = decode(wire.CLIENT_MESSAGES, encode(submit, b"instance", [b""])).message
    assert (found.rows, found.attempts) == ((1 << 32) - 1, (1 << 16) - 1)


def test_a_mistake_is_the_futures_error() -> None:
    with Client("ipc:///nowhere/p.sock") as client:
        for future in (client.submit("m", 1.0, priority=1000), client.submit("m", 1.0, device="", block=True)):
            assert isinstance(future.exception(0), InvalidInput)


def test_what_only_equals_what_was_right_before_is_looked_at_too() -> None:
    assert request(priority=1).priority == 1
    with pytest.raises(InvalidInput, match="priority is True"):
        request(priority=True)
    assert [request(version=version).version for version in (1, "1")] == [1, "1"]
    with pytest.raises(InvalidInput, match=r"version is 1\.0"):
        request(version=1.0)
    assert request(timeout=1).timeout_s == 1
    with pytest.raises(InvalidInput, match="timeout is True"):
        request(timeout=True)
    names = ["y"]
    assert request(outputs=names).outputs == ("y",)
    names.append("z")
    assert request(outputs=names).outputs == ("y", "z")
    with pytest.raises(InvalidInput, match="an output's name is a str, not list"):
        request(outputs=["y", []])
    assert request() is request(), "the check is made once"


@pytest.mark.parametrize("way", ["submit", "run", "submit_many", "map", "scatter", "session"])
def test_an_option_that_there_is_not_is_refused_at_once(way: str) -> None:
    given = () if way == "session" else (np.ones((1, 2)),)
    with Client("ipc:///nowhere", connect_timeout=0.0) as client, pytest.raises(TypeError, match="timout"):
        next(getattr(client, way)("m", *given, timout=1.0))  # `map` begins with its first result
