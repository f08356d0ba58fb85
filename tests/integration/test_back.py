"""The workers' socket on its own: what a RUN is made of, and what is heard of a DONE."""

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq

from pool.core.events import Failed, RowsChanged, Spoiled, WorkerBroken, WorkerHello
from pool.serve.handouts import Handouts
from pool.serve.inbox import FRAMES_A_TURN, MOST_FRAMES
from pool.serve.layouts import read
from pool.serve.refusals import MOST_REASONS
from pool.serve.rows import Inputs
from pool.wire import worker_messages as wire
from pool.wire.calls import ROWS, Table, TensorHeader
from pool.wire.codec import pack, unpack
from pool.wire.faults import Fault
from pool.wire.frames import NO_INSTANCE, VERSION, decode, encode
from pool.wire.message import Message
from pool.wire.refusal import Refusal
from simulation.driver import BatchDone, PartToRun, RunBatch, Succeeded
from support.heard import HeardBack as Back
from support.outcomes import Outcome, PartDone, done_of

INSTANCE = b"instance"
SECRET = b"s" * 32
LANE = 0
SETTINGS = wire.TensorFlowSettings(True, 0.0, True, False, 0, 0, {}, False)
WELCOME = wire.Welcome(2, 0, 1.0, SETTINGS, ())
TABLE = pack(Table((TensorHeader("x", "int32", (ROWS,), False), TensorHeader("s", "string", (ROWS,), False))))


@pytest.fixture
def context() -> "Iterator[zmq.Context[zmq.Socket[bytes]]]":
    with zmq.Context() as context:
        yield context


@pytest.fixture
def back(context: "zmq.Context[zmq.Socket[bytes]]") -> Iterator[Back]:
    with tempfile.TemporaryDirectory(prefix="pb-") as folder:
        back = Back(context, Path(folder, "back.sock"), INSTANCE, Handouts(lambda *_: False, lambda *_: True))
        back.expect(0, 1, SECRET)
        yield back
        back.close()


@pytest.fixture
def lane(back: Back, context: "zmq.Context[zmq.Socket[bytes]]") -> "Iterator[zmq.Socket[bytes]]":
    """A lane that has been welcomed."""
    with context.socket(zmq.DEALER) as dealer:
        dealer.linger = 0
        dealer.rcvtimeo = 5000
        dealer.connect(back.endpoint)
        dealer.send_multipart(encode(wire.Hello(0, 1, None, SECRET), NO_INSTANCE))
        assert heard(back) == [WorkerHello(0, 1)]
        assert back.welcome(0, 1, WELCOME)
        assert received(dealer)[0] == WELCOME
        with context.socket(zmq.DEALER) as other:
            other.linger = 0
            other.rcvtimeo = 5000
            other.connect(back.endpoint)
            other.send_multipart(encode(wire.Hello(0, 1, LANE, SECRET), NO_INSTANCE))
            back.socket.poll(5000)
            assert list(back.receive()) == []
            assert isinstance(received(other)[0], wire.WelcomeLane)
            yield other


def heard(back: Back) -> list[Any]:
    back.socket.poll(5000)
    return list(back.receive())


def received(dealer: "zmq.Socket[bytes]") -> tuple[Message, list[bytes]]:
    envelope = decode(wire.WORKER_MESSAGES, dealer.recv_multipart())
    return envelope.message, list(map(bytes, envelope.payload))


def job(first: int, rows: int) -> Inputs:
    """Rows `first`, first + 1, …, as numbers and as strings of so many letters."""
    numbers = np.arange(first, first + rows, dtype="<i4")
    letters = [b"x" * number for number in numbers.tolist()]
    strings = np.cumsum(numbers).astype("<u8").tobytes() + b"".join(letters)
    layout = read(TABLE)
    buffers = [zmq.Frame(numbers.tobytes()), zmq.Frame(strings)]
    layout.check(rows, buffers)
    return Inputs(TABLE, buffers, layout, rows)


def batch(*parts: PartToRun, by_rows: bool = True) -> RunBatch:
    return RunBatch(0, 1, LANE, 9, "m", "s", ("y",), parts, 8, by_rows)


def numbers_of(payload: Sequence[bytes]) -> list[list[int]]:
    return [np.frombuffer(buffer, "<i4").tolist() for buffer in payload[1::2]]


def test_a_batch_is_one_table_and_the_buffers_of_each_part(back: Back, lane: "zmq.Socket[bytes]") -> None:
    assert back.run(batch(PartToRun(job(1, 3), 0, 3), PartToRun(job(10, 5), 1, 3)))
    run, payload = received(lane)
    assert run == wire.Run(9, "m", "s", ("y",), (3, 2), 8, True)
    assert payload[0] == TABLE
    assert numbers_of(payload) == [[1, 2, 3], [11, 12]]
    assert [np.frombuffer(payload[4][:16], "<u8").tolist(), payload[4][16:]] == [[21, 33], b"x" * 23]
    assert len(payload) == 5


def test_a_job_without_rows_is_sent_as_it_came(back: Back, lane: "zmq.Socket[bytes]") -> None:
    whole = Inputs(b"whole", [zmq.Frame(b"a"), zmq.Frame(b"b")], None, None)
    assert back.run(batch(PartToRun(whole, 0, 0), by_rows=False))
    run, payload = received(lane)
    assert isinstance(run, wire.Run)
    assert (run.rows, run.by_rows) == ((), False)
    assert payload == [b"whole", b"a", b"b"]


def test_a_large_piece_is_sent_from_the_memory_that_it_came_in(back: Back, lane: "zmq.Socket[bytes]") -> None:
    """It must live until libzmq has sent it, whoever else has let it go."""
    numbers = np.arange(1 << 20, dtype="<i4")
    table = pack(Table((TensorHeader("x", "int32", (ROWS,), False),)))
    large = Inputs(table, [zmq.Frame(numbers.tobytes())], read(table), 1 << 20)
    for start in range(0, 1 << 20, 1 << 18):
        assert back.run(batch(PartToRun(large, start, start + (1 << 18))))
    del large
    for start in range(0, 1 << 20, 1 << 18):
        _, payload = received(lane)
        assert np.array_equal(np.frombuffer(payload[1], "<i4"), numbers[start : start + (1 << 18)])


def test_a_call_is_said_to_a_lane_once_and_to_the_next_incarnation_anew(back: Back, lane: "zmq.Socket[bytes]") -> None:
    for _ in range(2):
        assert back.run(batch(PartToRun(job(1, 1), 0, 1)))
    (first, _), (second, payload) = received(lane), received(lane)
    assert isinstance(first, wire.Run)
    assert isinstance(second, wire.Run)
    assert (first.registers, second.registers) == (True, False)
    assert first.call == second.call
    assert (second.model, payload[0]) == ("", b""), "not a byte of it"
    assert len(back._calls) == 1
    back.forget(0, 1)
    assert not back._calls
    assert not back.run(batch(PartToRun(job(1, 1), 0, 1))), "nobody is there"
    assert not back._calls


def test_a_call_that_did_not_reach_its_lane_is_said_again(back: Back, lane: "zmq.Socket[bytes]") -> None:
    route = back._routes[0, 1, LANE]
    back._routes[0, 1, LANE] = b"\0none"  # as if its connection had broken
    assert not back.run(batch(PartToRun(job(1, 1), 0, 1)))
    back._routes[0, 1, LANE] = route
    assert back.run(batch(PartToRun(job(1, 1), 0, 1)))
    run, payload = received(lane)
    assert isinstance(run, wire.Run)
    assert run.registers
    assert (run.model, payload[0]) == ("m", TABLE)


def test_a_lane_that_is_not_there_takes_nothing(back: Back) -> None:
    assert not back.run(batch(PartToRun(job(1, 1), 0, 1)))


def test_each_outcome_is_told_with_the_workers_times(back: Back, lane: "zmq.Socket[bytes]") -> None:
    outcomes = (
        PartDone(2),
        wire.Failed(Fault.INVALID_INPUT, "its own"),
        wire.Spoiled(Fault.MODEL_FAILED, "somebody's"),
        wire.RowsChanged("other rows"),
        PartDone(1),
    )
    done = done_of(9, outcomes, 0.5, 0.125)
    lane.send_multipart(encode(done, INSTANCE, [b"a", b"b", b"c"]))
    (event,) = heard(back)
    assert isinstance(event, BatchDone)
    assert (event.slot, event.incarnation, event.batch) == (0, 1, 9)
    assert (event.run_s, event.fetch_s) == (0.5, 0.125)
    first, *others, last = event.outcomes
    assert others == [
        Failed(Fault.INVALID_INPUT, "its own"),
        Spoiled(Fault.MODEL_FAILED, "somebody's"),
        RowsChanged("other rows"),
    ]
    for outcome, frames in ((first, [b"a", b"b"]), (last, [b"c"])):
        assert isinstance(outcome, Succeeded)
        assert list(map(bytes, outcome.payload)) == frames  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("outcomes", "payload"),
    [
        ((PartDone(2),), [b"a"]),
        ((PartDone(0),), []),
        ((wire.RowsChanged("x"),), [b"a"]),
    ],
)
def test_a_done_whose_frames_are_amiss_is_dropped_and_counted_and_its_worker_is_broken(
    back: Back, lane: "zmq.Socket[bytes]", outcomes: tuple[Outcome, ...], payload: list[bytes]
) -> None:
    lane.send_multipart(encode(done_of(9, outcomes, 0.0, 0.0), INSTANCE, payload))
    (broken,) = heard(back)
    assert isinstance(broken, WorkerBroken)
    assert (broken.slot, broken.incarnation) == (0, 1)
    assert sum(back.dropped.values()) == 1


# --- HELLOs that cannot be true


Say = Callable[..., "zmq.Socket[bytes]"]


@pytest.fixture
def say(back: Back, context: "zmq.Context[zmq.Socket[bytes]]") -> Iterator[Say]:
    """Says HELLO of a lane, or of the control thread, from a new connection or from the one that is given."""
    with contextlib.ExitStack() as stack:

        def hello(lane: int | None, dealer: "zmq.Socket[bytes] | None" = None) -> "zmq.Socket[bytes]":
            if dealer is None:
                dealer = stack.enter_context(context.socket(zmq.DEALER))
                dealer.linger = 0
                dealer.rcvtimeo = 5000
                dealer.connect(back.endpoint)
            dealer.send_multipart(encode(wire.Hello(0, 1, lane, SECRET), NO_INSTANCE))
            return dealer

        yield hello


def test_a_lane_is_not_welcomed_before_its_worker(back: Back, say: Say) -> None:
    """The control thread's connection would hear WELCOME_LANE and take it for the answer to its own HELLO."""
    dealer = say(5)
    why = "HELLO of lane 5 before WELCOME"
    assert heard(back) == [WorkerBroken(0, 1, why)]
    assert not dealer.poll(50)
    say(None, dealer)
    assert heard(back) == [WorkerHello(0, 1)]
    say(0)
    assert heard(back) == [WorkerBroken(0, 1, "HELLO of lane 0 before WELCOME")]
    assert back.welcome(0, 1, WELCOME)
    assert received(dealer)[0] == WELCOME, "it is the first that it hears"
    lane = say(0)
    assert heard(back) == []
    assert isinstance(received(lane)[0], wire.WelcomeLane)
    assert back.dropped == {why: 1, "HELLO of lane 0 before WELCOME": 1}


def test_a_standby_has_no_lanes_until_it_takes_a_seat(back: Back, say: Say) -> None:
    dealer = say(None)
    assert heard(back) == [WorkerHello(0, 1)]
    assert back.welcome(0, 1, replace(WELCOME, hold=True))
    say(0)
    assert heard(back) == [WorkerBroken(0, 1, "HELLO of lane 0 before WELCOME")]
    assert back.take_slot(0, 1, WELCOME)
    lane = say(0)
    assert heard(back) == []
    assert isinstance(received(lane)[0], wire.WelcomeLane)
    assert [type(received(dealer)[0]) for _ in range(2)] == [wire.Welcome, wire.TakeSlot]


@pytest.mark.parametrize("lane", [-1, 2, 64, (1 << 64) - 1])
def test_a_lane_that_its_worker_does_not_have_is_refused(back: Back, say: Say, lane: int) -> None:
    say(None)
    assert heard(back) == [WorkerHello(0, 1)]
    assert back.welcome(0, 1, WELCOME)
    say(lane)
    why = f"HELLO of lane {lane} of 2"
    assert heard(back) == [WorkerBroken(0, 1, why)]
    assert back.dropped == {why: 1}


def test_a_connection_is_one_peer_and_a_peer_one_connection(back: Back, say: Say) -> None:
    control = say(None)
    assert heard(back) == [WorkerHello(0, 1)]
    assert back.welcome(0, 1, WELCOME)
    lane = say(0)
    assert heard(back) == []
    for whose, dealer, why in (
        (1, control, "HELLO from a peer that has said it"),
        (None, lane, "HELLO from a peer that has said it"),
        (1, lane, "HELLO from a peer that has said it"),
        (0, None, "a second HELLO of lane 0"),
        (None, None, "a second HELLO of the control thread"),
    ):
        say(whose, dealer)
        assert heard(back) == [WorkerBroken(0, 1, why)]
    back.forget(0, 1)
    say(1)
    assert heard(back) == []
    assert back.dropped["HELLO of slot 0 incarnation 1 without its secret"] == 1


# --- HELLOs of other versions


def of(version: int, frames: list[bytes]) -> list[bytes]:
    return [frames[0][:4] + bytes((version,)) + frames[0][5:], *frames[1:]]


HELLO = encode(wire.Hello(0, 1, None, SECRET), NO_INSTANCE)
OTHER_HELLOS = [of(VERSION + 1, HELLO), of(VERSION - 1, HELLO), of(255, [HELLO[0][:6]]), of(0, [HELLO[0], b"\xc1"])]


@pytest.mark.parametrize("frames", OTHER_HELLOS)
def test_a_hello_of_another_version_is_answered_and_changes_nothing(back: Back, say: Say, frames: list[bytes]) -> None:
    dealer = say(None)
    assert heard(back) == [WorkerHello(0, 1)]
    stranger = say(None)
    assert heard(back) == [WorkerBroken(0, 1, "a second HELLO of the control thread")]
    stranger.send_multipart(frames)
    assert heard(back) == []
    preamble, header = stranger.recv_multipart()
    assert preamble == b"TFWP" + bytes((VERSION, 0)) + INSTANCE
    assert f"protocol version {frames[0][4]} from the other side, {VERSION} here" in unpack(Refusal, header).text
    assert [reason for reason in back.dropped if f"protocol version {frames[0][4]} " in reason]
    assert back.welcome(0, 1, WELCOME)
    assert received(dealer)[0] == WELCOME


@pytest.mark.parametrize(
    "frames",
    [of(VERSION + 1, encode(wire.Stop(), NO_INSTANCE)), [b"TFWQ\x09\x20" + bytes(8), b""], [b""], [b"TFWP\x0b"]],
)
def test_nothing_else_of_a_stranger_is_answered(back: Back, say: Say, frames: list[bytes]) -> None:
    stranger = say(1)  # without WELCOME
    assert heard(back) != []
    stranger.send_multipart(frames)
    assert heard(back) == []
    assert not stranger.poll(50)
    assert back.dropped.total() == 2


def test_a_worker_that_has_said_hello_has_one_version(back: Back, say: Say) -> None:
    dealer = say(None)
    assert heard(back) == [WorkerHello(0, 1)]
    dealer.send_multipart(OTHER_HELLOS[0])
    (broken,) = heard(back)
    assert isinstance(broken, WorkerBroken)
    assert not dealer.poll(50)


def test_one_that_goes_on_saying_it_and_never_reads_holds_nobody_up(back: Back, say: Say) -> None:
    stranger = say(1)
    assert heard(back) != []
    versions = [version for version in range(256) if version != VERSION]
    before = back.dropped.total()
    for turn in range(1, 21):  # ROUTER's pipe to one who does not read is full long before
        for version in versions:
            stranger.send_multipart(of(version, HELLO))
        while back.dropped.total() < before + turn * len(versions):
            assert heard(back) == []
    assert len(back.dropped) <= MOST_REASONS + 1
    say(None)
    assert heard(back) == [WorkerHello(0, 1)]


# --- strangers


def test_of_a_stranger_nothing_is_read_that_takes_long(
    back: Back, context: "zmq.Context[zmq.Socket[bytes]]", lane: "zmq.Socket[bytes]"
) -> None:
    """Without the bounds ten such messages held up a pool for 14 and 25 seconds."""
    preamble, _ = encode(wire.Stop(), NO_INSTANCE)
    with context.socket(zmq.DEALER) as stranger:
        stranger.linger = 0
        stranger.connect(back.endpoint)
        stranger.send_multipart([preamble, b"\xdd" + (1024).to_bytes(4, "big") + b"\x80" * 1024])
        assert heard(back) == []
        assert back.dropped == {"Stop: a header of 1029 bytes": 1}
        stranger.send_multipart(encode(done_of(1, [PartDone(1)] * 1000, 0.0, 0.0), NO_INSTANCE, [b""] * 1000))
        assert heard(back) == []
        assert back.dropped["a first frame of 8052 bytes before HELLO"] == 1
        stranger.send_multipart([preamble, *([b""] * 3 * FRAMES_A_TURN)])
        assert heard(back) == []
        assert back.dropped["a message of more than 2 frames before HELLO"] == 1
        lane.send_multipart(encode(done_of(1, [PartDone(1)], 0.0, 0.0), NO_INSTANCE, [b""]))
        turns = 0
        while not (events := heard(back)):
            turns += 1
        assert turns >= 2, "what is left of the long message is discarded in turns"
        assert [type(event) for event in events] == [BatchDone]


def test_a_workers_answer_may_have_any_number_of_frames(back: Back, lane: "zmq.Socket[bytes]") -> None:
    parts = [PartDone(2)] * MOST_FRAMES
    lane.send_multipart(encode(done_of(1, parts, 0.0, 0.0), NO_INSTANCE, [*([b""] * 2 * MOST_FRAMES)]))
    (event,) = heard(back)
    assert isinstance(event, BatchDone)
    assert len(event.outcomes) == MOST_FRAMES
