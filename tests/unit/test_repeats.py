"""The inputs of a quarantined job are not run again for a while, and no others' are held up."""

import dataclasses
from typing import Any

import pytest
import zmq

from pool.serve.repeats import MOST_READ, MOST_REMEMBERED, REMEMBERED_S, STEP_BYTES, Repeats
from pool.serve.rows import Inputs


def refusal(repeats: Repeats, inputs: Inputs, now: float) -> str | None:
    """As the front asks: of suspects alone all is read, a step at a time."""
    if not repeats.suspects(inputs, now):
        return None
    digests: list[bytes] = []
    assert repeats.read(inputs, digests.append) is not None
    while not digests:
        repeats.step()
    return repeats.refusal(digests[0], now)


POISON = Inputs(b"table", [zmq.Frame(b"poison")], None, 3, ("m", None, None, None))


def test_the_same_inputs_are_refused_until_the_time_is_over() -> None:
    repeats = Repeats()
    assert refusal(repeats, POISON, 100.0) is None
    repeats.quarantined(POISON, 100.0)
    again = dataclasses.replace(POISON, buffers=[zmq.Frame(b"poison")])
    why = refusal(repeats, again, 110.0)
    assert why is not None
    assert "quarantined 10 s ago" in why
    assert f"in {REMEMBERED_S - 10:.0f} s" in why
    assert refusal(repeats, again, 100.0 + REMEMBERED_S) is None


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
    assert refusal(repeats, other, 101.0) is None


def test_what_is_remembered_is_bounded_and_the_latest_stay() -> None:
    repeats = Repeats()
    jobs = [dataclasses.replace(POISON, buffers=[zmq.Frame(b"%06d" % n)]) for n in range(3 * MOST_REMEMBERED)]
    for number, job in enumerate(jobs):
        repeats.quarantined(job, 100.0 + number * 1e-3)
    refused = [job for job in jobs if refusal(repeats, job, 101.0)]
    assert refused == jobs[-MOST_REMEMBERED:]
    repeats.quarantined(POISON, 1000.0)
    assert len(repeats._instants) == len(repeats.samples) == 1, "what is over is forgotten"


def test_large_inputs_that_differ_in_the_middle_alone_are_told_apart() -> None:
    large = bytes(100_000)
    poison = dataclasses.replace(POISON, buffers=[zmq.Frame(large)])
    repeats = Repeats()
    repeats.quarantined(poison, 100.0)
    other = bytearray(large)
    other[50_000] = 1
    assert refusal(repeats, dataclasses.replace(POISON, buffers=[zmq.Frame(bytes(other))]), 101.0) is None
    assert refusal(repeats, dataclasses.replace(POISON, buffers=[zmq.Frame(large)]), 101.0) is not None


def test_no_step_reads_more_than_its_bytes_and_the_same_inputs_are_known_as_soon_as_they_were_read() -> None:
    steps = 7
    large = dataclasses.replace(POISON, buffers=[zmq.Frame(bytes(STEP_BYTES)) for _ in range(steps)])
    repeats = Repeats()
    digests: list[Any] = []
    repeats.quarantined(large, 100.0)
    assert repeats.suspects(large, 100.0)
    assert repeats.read(large, digests.append) is not None
    turns = 0
    while repeats:
        repeats.step()
        turns += 1
    assert turns == 2 * steps - 1, "the first step was in `quarantined`"
    assert repeats.refusal(digests[0], 101.0) is not None


def test_the_samples_of_many_buffers_are_no_more_than_a_step() -> None:
    class Counted(bytes):
        read = 0

        @property
        def buffer(self) -> "Counted":
            return self

        def __getitem__(self, part: Any) -> Any:
            piece: Any = super().__getitem__(part)
            assert isinstance(piece, bytes)
            Counted.read += len(piece)
            return piece

    counted: list[Any] = [Counted(4096) for _ in range(4096)]
    many = dataclasses.replace(POISON, buffers=counted)
    repeats = Repeats()
    repeats.quarantined(POISON, 100.0)
    assert not repeats.suspects(many, 100.0)
    assert 0 < Counted.read <= STEP_BYTES


def test_what_is_being_read_is_bounded_and_what_was_given_up_is_not_read() -> None:
    large = dataclasses.replace(POISON, buffers=[zmq.Frame(bytes(3 * STEP_BYTES))])
    repeats = Repeats()
    digests: list[Any] = []
    readings = [repeats.read(large, digests.append) for _ in range(MOST_READ + 1)]
    assert readings.pop() is None
    for reading in readings[1:]:
        assert reading is not None
        reading.give_up()
    turns = 0
    while repeats:
        repeats.step()
        turns += 1
    assert len(digests) == 1
    assert turns <= 3 + MOST_READ
