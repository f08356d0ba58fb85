"""Fields of a wrong type, one at a time: each is refused, and the text says which and why."""

from typing import Any

import msgpack
import pytest

from pool.wire.batches import _Failures as Failures
from pool.wire.calls import Names, Table
from pool.wire.client_messages import Answer, Cancel, Failure
from pool.wire.codec import BadFrame, pack, packed, unpack
from pool.wire.faults import Fault
from pool.wire.signatures import ModelInfo, Signature
from pool.wire.worker_messages import (
    Beat,
    Done,
    Failed,
    Hello,
    LaneProgress,
    Phase,
    RowsChanged,
    Spoiled,
    Welcome,
)
from support.outcomes import Outcome, PartDone, done_of, outcomes_of

REST = (None, False)  # of `Names`: version, counted
SETTINGS = [True, 0.5, True, False, 0, 0, {"GPU": 1}, False, []]
WELCOME = [1, 0, 1.0]


@pytest.mark.parametrize(
    ("kind", "fields", "complaint"),
    [
        (Names, None, "Names: expected an array, got NoneType"),
        (Names, {}, "Names: expected an array, got dict"),
        (Names, ["m", None], "Names: expected 6 fields, got 2"),
        (Names, ["m", None, None, None, *REST, 1], "Names: expected 6 fields, got 7"),
        (Names, [b"m", None, None, None, *REST], "Names: model: expected str, got bytes"),
        (Names, ["m", None, None, None, None, 1], "Names: counted: expected bool, got int"),
        (Cancel, [True, False], "Cancel: job: expected int, got bool"),
        (Cancel, [1.0, False], "Cancel: job: expected int, got float"),
        (Cancel, ["1", False], "Cancel: job: expected int, got str"),
        (Cancel, [None, False], "Cancel: job: expected int, got NoneType"),
        (Cancel, [msgpack.ExtType(1, bytes(16)), False], "Cancel: job: expected int, got ExtType"),
        (Failure, [1, "overloaded", "", True], "Failure: retry_after_s: expected float, got bool"),
        (Failure, [1, "overloaded", "", "5"], "Failure: retry_after_s: expected float, got str"),
        (Failure, [1, "overloaded", "", msgpack.Timestamp(1)], "retry_after_s: expected float, got Timestamp"),
        (Hello, [0, 1, None, "secret"], "Hello: secret: expected bytes, got str"),
        (Hello, [0, 1, False, b"secret"], "Hello: lane: expected int, got bool"),
        (Names, ["m", None, ["y", 1], None, *REST], "Names: outputs: expected str, got int"),
        (Names, ["m", None, None, None, 3, False], "Names: version: expected an array, got int"),
        (Names, ["m", None, None, None, [0, True], False], "Names: version: expected int, got bool"),
        (Names, ["m", None, None, None, [2, 3], False], "Names: version: expected one of int, str"),
        (Table, [[["x", "int8", [1, True], False]]], "Table: tensors: shape: expected int, got bool"),
        (Table, [[["x", "int8", [1], 0]]], "Table: tensors: weak: expected bool, got int"),
        (Table, [{"x": 1}], "Table: tensors: expected an array, got dict"),
        (Failure, [1, "no-such-fault", "", None], "Failure: fault: no Fault: 'no-such-fault'"),
        (Failure, [1, "x" * 9999, "", None], "Failure: fault: no Fault: 'x"),
        (Failure, [1, [], "", None], "Failure: fault: no Fault: ()"),
        (Beat, [1, "", []], "Beat: phase: no Phase: 1"),
        (Failures, [[[3, [1]]]], "_Failures: failures: expected one of Failed, Spoiled, RowsChanged"),
        (Failures, [[[-1, ["", ""]]]], "_Failures: failures: expected one of Failed, Spoiled, RowsChanged"),
        (Failures, [[[2**64 - 1, [1]]]], "_Failures: failures: expected one of Failed, Spoiled, RowsChanged"),
        (Failures, [[[False, [1]]]], "_Failures: failures: expected one of Failed, Spoiled, RowsChanged"),
        (Failures, [[[0]]], "_Failures: failures: expected one of Failed, Spoiled, RowsChanged"),
        (Failures, [[[0, [1], 2]]], "_Failures: failures: expected one of Failed, Spoiled, RowsChanged"),
        (Failures, [[[]]], "_Failures: failures: expected one of Failed, Spoiled, RowsChanged"),
        (LaneProgress, ["one", 1, 0.0], "LaneProgress: lane: expected int, got str"),
        (
            Welcome,
            [*WELCOME, [*SETTINGS[:6], {b"GPU": 1}, False, []], [], False, 0.0, [], None],
            "Welcome: tensorflow: device_count: expected a map",
        ),
        (
            Welcome,
            [1, 0, 1.0, [*SETTINGS[:6], {"GPU": 1.0}, False, []], [], False, 0.0, [], None],
            "device_count: expected int, got float",
        ),
        (
            Welcome,
            [1, 0, 1.0, [*SETTINGS[:6], [["GPU", 1]], False, []], [], False, 0.0, [], None],
            "device_count: expected a map, got tuple",
        ),
        (Welcome, [1, 0, 1.0, [*SETTINGS[:6], {1: 1}, False, []], [], False, 0.0, [], None], "not msgpack: ValueError"),
    ],
)
def test_a_field_of_another_type_is_named(kind: type, fields: Any, complaint: str) -> None:
    with pytest.raises(BadFrame) as caught:
        unpack(kind, msgpack.packb(fields))
    text = str(caught.value)
    assert complaint in text
    assert len(text) < 150


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (["m", None, None, None, *REST], Names("m", None, None, None, *REST)),
        (["", "", [], "", [0, 2**64 - 1], True], Names("", "", (), "", 2**64 - 1, True)),
        (["\0", "s", ["y"], "d", [1, "canary"], True], Names("\0", "s", ("y",), "d", "canary", True)),
        ([1, "overloaded", "", 5], Failure(1, Fault.OVERLOADED, "", 5.0)),
    ],
)
def test_what_fits_is_taken(fields: Any, message: object) -> None:
    got = unpack(type(message), msgpack.packb(fields))
    assert repr(got) == repr(message), "of the same types: 5 is not 5.0"


def test_the_form_on_the_wire() -> None:
    """Fields in order, an enum as its text, a union as its member's index and that member."""
    failed = Failed(Fault.MODEL_FAILED, "why")
    answered = done_of(3, [PartDone(2), failed, RowsChanged("2 for 3"), PartDone(1)], 0.5, 0.25)
    failures = [[0, ["model-failed", "why"]], [2, ["2 for 3"]]]
    assert msgpack.unpackb(pack(Failures(answered.failures))) == [failures]
    assert answered.frames == (2, 0, 0, 1)
    assert list(outcomes_of(answered)) == [PartDone(2), failed, RowsChanged("2 for 3"), PartDone(1)]
    assert msgpack.unpackb(pack(Beat(Phase.WARMING_UP, "m", ()))) == ["warming up", "m", []]


def test_what_the_wire_cannot_hold_is_not_sent() -> None:
    with pytest.raises(OverflowError):
        pack(Cancel(2**64))


@pytest.mark.parametrize(
    ("odd", "sent"),
    [
        (Failed(Fault.MODEL_FAILED, "m\udcff: é"), Failed(Fault.MODEL_FAILED, r"m\udcff: é")),
        (Failure(1, Fault.MODEL_FAILED, "\ud800", None), Failure(1, Fault.MODEL_FAILED, r"\ud800", None)),
        (Beat(Phase.LOADING, "\udc80", ()), Beat(Phase.LOADING, r"\udc80", ())),
        (Answer(1, "\udcff"), Answer(1, r"\udcff")),
        (
            Failures((Spoiled(Fault.MODEL_FAILED, "\udcff"),)),
            Failures((Spoiled(Fault.MODEL_FAILED, r"\udcff"),)),
        ),
        (
            ModelInfo("m", "/\udcff", {"\ud801": Signature({}, {})}, False),
            ModelInfo("m", r"/\udcff", {r"\ud801": Signature({}, {})}, False),
        ),
    ],
)
def test_a_text_that_is_no_utf8_is_sent_legibly(odd: Any, sent: Any) -> None:
    assert unpack(type(odd), pack(odd)) == sent


def test_so_is_one_in_plain_values() -> None:
    value = {"slots": [{"reason": "a \udcff", "\ud800": b"\xff", "n": 1}], "good": "é"}
    assert msgpack.unpackb(packed(value)) == {
        "slots": [{"reason": r"a \udcff", r"\ud800": b"\xff", "n": 1}],
        "good": "é",
    }


def test_an_error_that_thousands_of_parts_share_is_sent_once() -> None:
    long, other = "x" * 2000, "y" * 2000
    outcomes: list[Outcome] = [
        Spoiled(Fault.MODEL_FAILED, long),
        PartDone(2),
        Failed(Fault.INVALID_INPUT, other),
        *[Spoiled(Fault.MODEL_FAILED, long)] * 4000,
        Spoiled(Fault.MODEL_FAILED, other),
        Spoiled(Fault.MODEL_FAILED, other),
    ]
    (frame,) = done_of(1, outcomes, 0.1, 0.1).to_frames(b"instance", [b"", b""])
    assert len(frame) < 150_000
    (again, _) = Done.read(memoryview(frame), [frame])
    assert list(outcomes_of(again)) == outcomes
