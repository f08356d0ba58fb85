"""The inputs of a quarantined job are not run again for a while, and no others' are held up."""

import dataclasses

import pytest
import zmq

from pool.router.repeats import MOST_REMEMBERED, REMEMBERED_S, Repeats
from pool.router.rows import Inputs

POISON = Inputs(b"table", [zmq.Frame(b"poison")], None, 3, ("m", None, None, None))


def test_the_same_inputs_are_refused_until_the_time_is_over() -> None:
    repeats = Repeats()
    assert repeats.refusal(POISON, 100.0) is None
    repeats.quarantined(POISON, 100.0)
    again = dataclasses.replace(POISON, buffers=[zmq.Frame(b"poison")])
    why = repeats.refusal(again, 110.0)
    assert why is not None
    assert "quarantined 10 s ago" in why
    assert f"in {REMEMBERED_S - 10:.0f} s" in why
    assert repeats.refusal(again, 100.0 + REMEMBERED_S) is None


@pytest.mark.parametrize(
    "other",
    [
        dataclasses.replace(POISON, buffers=[zmq.Frame(b"p0ison")]),
        dataclasses.replace(POISON, buffers=[zmq.Frame(b"poi"), zmq.Frame(b"son")]),
        dataclasses.replace(POISON, table=b"tablf"),
        dataclasses.replace(POISON, rows=2),
        dataclasses.replace(POISON, asked=("other", None, None, None)),
        dataclasses.replace(POISON, asked=("m", "canary", None, None)),
        dataclasses.replace(POISON, asked=("m", None, "predict", None)),
        dataclasses.replace(POISON, asked=("m", None, None, ("y",))),
    ],
)
def test_any_other_inputs_are_run(other: Inputs) -> None:
    repeats = Repeats()
    repeats.quarantined(POISON, 100.0)
    assert repeats.refusal(other, 101.0) is None


def test_what_is_remembered_is_bounded_and_the_latest_stay() -> None:
    repeats = Repeats()
    jobs = [dataclasses.replace(POISON, buffers=[zmq.Frame(b"%06d" % n)]) for n in range(3 * MOST_REMEMBERED)]
    for number, job in enumerate(jobs):
        repeats.quarantined(job, 100.0 + number * 1e-3)
    refused = [job for job in jobs if repeats.refusal(job, 101.0)]
    assert refused == jobs[-MOST_REMEMBERED:]
    repeats.quarantined(POISON, 1000.0)
    assert len(repeats._instants) == len(repeats._samples) == 1, "what is over is forgotten"


def test_large_inputs_that_differ_in_the_middle_alone_are_told_apart() -> None:
    large = bytes(100_000)
    poison = dataclasses.replace(POISON, buffers=[zmq.Frame(large)])
    repeats = Repeats()
    repeats.quarantined(poison, 100.0)
    other = bytearray(large)
    other[50_000] = 1
    assert repeats.refusal(dataclasses.replace(POISON, buffers=[zmq.Frame(bytes(other))]), 101.0) is None
    assert repeats.refusal(dataclasses.replace(POISON, buffers=[zmq.Frame(large)]), 101.0) is not None
