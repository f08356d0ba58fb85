"""A lane is told once what a call is. The pool gives the numbers, and a lane keeps no more of them than there are."""

from typing import Any

import pytest

from pool.serve.lane_calls import KEPT_BYTES, KEPT_OUTPUTS, UNKEPT, Key
from pool.serve.lane_calls import LaneCalls as Said
from pool.wire.batches import Run
from pool.wire.calls import MOST_CALLS
from pool.wire.codec import BadFrame
from pool.wire.frames import decode, encode
from pool.wire.worker_messages import WORKER_MESSAGES
from workers.lane import LaneCalls as Heard


def key(number: int, table: bytes = b"table") -> Key:
    return f"m{number}", "s", ("y",), table


def test_a_call_is_registered_once() -> None:
    said = Said()
    assert said.number(key(1)) == (1, True)
    assert said.number(key(1)) == (1, False)
    different: list[Key] = [
        ("m1", None, ("y",), b"table"),
        ("m1", "s", None, b"table"),
        ("m1", "s", ("y",), b"tablf"),
        key(2),
    ]
    assert [said.number(each) for each in different] == [(number, True) for number in range(2, 6)]


def test_the_one_that_was_used_least_recently_gives_its_number_away() -> None:
    said = Said()
    for number in range(1, MOST_CALLS):
        assert said.number(key(number)) == (number, True)
    assert said.number(key(1)) == (1, False)
    assert said.number(key(5000)) == (2, True)
    assert said.number(key(1)) == (1, False)
    assert said.number(key(2)) == (3, True)
    assert len(said) == MOST_CALLS - 1


def test_what_was_not_sent_is_registered_again_and_no_number_is_given_twice() -> None:
    said = Said()
    for number in (1, 2, 3):
        said.number(key(number))
    said.unsent(key(2))
    said.unsent(key(2))
    assert said.number(key(3)) == (3, False)
    assert said.number(key(4)) == (2, True)
    assert said.number(key(2)) == (4, True)


@pytest.mark.parametrize(
    "large",
    [
        ("m", None, None, bytes(KEPT_BYTES + 1)),
        ("m", None, ("y",) * (KEPT_OUTPUTS + 1), b""),
        ("m", None, ("y" * (KEPT_BYTES // 2),) * 2, b"t"),
    ],
)
def test_what_is_large_is_said_each_time_and_kept_nowhere(large: Key) -> None:
    said = Said()
    for _ in range(3):
        assert said.number(large) == (UNKEPT, True)
    assert len(said) == 0
    said.unsent(large)
    assert said.number(key(1)) == (1, True)


def run(call: int, *, registers: bool, model: str = "m") -> Run:
    return Run(7, model, "s", ("y",), (1,), 1, True, call=call, registers=registers)


def read(said: Run, payload: list[bytes]) -> tuple[Run, list[Any]]:
    envelope = decode(WORKER_MESSAGES, encode(said, b"instance", payload))
    return envelope.message, envelope.payload


def test_a_lane_knows_what_it_was_told() -> None:
    heard = Heard()
    first, payload = read(run(5, registers=True), [b"table", b"1234"])
    heard.complete(first, payload)
    assert payload == [b"table", b"1234"]
    again, payload = read(run(5, registers=False), [b"table", b"5678"])
    assert (again.model, again.signature, again.outputs, payload[0]) == ("", None, None, b"")
    heard.complete(again, payload)
    assert again == run(5, registers=False)
    assert payload == [b"table", b"5678"]
    assert isinstance(payload[0], bytes), "looked up by its hash"
    assert all(isinstance(each, memoryview) for each in payload[1:])


def test_a_number_that_is_used_again_is_another_call() -> None:
    heard = Heard()
    for model, table in (("a", b"1"), ("b", b"2")):
        heard.complete(*read(run(5, registers=True, model=model), [table]))
    again, payload = read(run(5, registers=False), [b""])
    heard.complete(again, payload)
    assert (again.model, payload) == ("b", [b"2"])


def test_what_was_never_registered_is_no_message() -> None:
    heard = Heard()
    heard.complete(*read(run(5, registers=True), [b"table"]))
    with pytest.raises(BadFrame, match="a batch of call 6, which was not registered"):
        heard.complete(*read(run(6, registers=False), [b""]))


def test_a_lane_keeps_no_more_calls_than_there_are_numbers() -> None:
    read(run(MOST_CALLS - 1, registers=True), [b"table"])
    with pytest.raises(BadFrame, match=f"call {MOST_CALLS}"):
        read(run(MOST_CALLS, registers=True), [b"table"])
