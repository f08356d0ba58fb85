"""The clients' socket on its own: slow readers, silent clients, dead ones."""

import math
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zmq

from pool.clock.alarms import Alarms
from pool.core.actions import JobFailed, UnpackChunk
from pool.core.events import ClientGone, Event, JobCancelled
from pool.serve import front as clients_front
from pool.serve import front as front_module
from pool.serve.clients import LOOK_S
from pool.serve.endpoints import RECEIVE_HIGH_WATER_MARK, SEND_HIGH_WATER_MARK
from pool.serve.front import LETTER_BYTES, LETTER_JOBS, PART_S, SILENCE_S
from pool.serve.inbox import FRAMES_A_TURN, MOST_FRAMES
from pool.serve.outbox import RETRY_S
from pool.serve.payload import FRAME_BYTES, VIEW_BYTES
from pool.serve.pipes import PIPE_BYTES
from pool.serve.questions import MOST_WAITING
from pool.serve.repeats import STEP_BYTES
from pool.serve.rows import Inputs
from pool.serve.shared_memory import SharedMemory
from pool.serve.standing import Standings
from pool.wire import client_messages as wire
from pool.wire.calls import ROWS, TABLE_BYTES, Table, TensorHeader, call_bytes
from pool.wire.codec import pack
from pool.wire.faults import Fault
from pool.wire.frames import NO_INSTANCE, decode, encode
from pool.wire.hot import SMALL_BYTES
from pool.wire.lent import Lent
from pool.wire.message import Message
from pool.wire.rights import RIGHTS
from pool.wire.segment import MemoryRequest
from pool.wire.timeline import Timeline
from pool.wire.unpacking import Unpacking
from simulation.driver import AnswerJob, JobArrived, JobDone
from support.asked import Asked, Numbers, framed
from support.heard import HeardFront as Front
from support.heard import address
from support.processes import eventually

INSTANCE = b"instance"
MOST_REPLIES = 50
SEGMENT_BYTES = 1 << 20
CREDIT = 16 << 20
TABLE = pack(Table((TensorHeader("x", "float32", (ROWS, 2), False),)))
TIMELINE = Timeline(41, 0.5, 0.0, 0.0, 0.0, 0.0, rows=3, batch_rows=3, slot=0, device="cpu:0", attempts=1)


@pytest.fixture
def context() -> "Iterator[zmq.Context[zmq.Socket[bytes]]]":
    with zmq.Context() as context:
        yield context


@pytest.fixture
def front(context: "zmq.Context[zmq.Socket[bytes]]") -> Iterator[Front]:
    with tempfile.TemporaryDirectory(prefix="pf-") as folder:
        shared_memory, turn = SharedMemory(SEGMENT_BYTES, SEGMENT_BYTES), Alarms().alarm(lambda: None)
        front = Front(context, wire.Opened("0", CREDIT, 60.0), INSTANCE, MOST_REPLIES, shared_memory, turn)
        front.bind_local(Path(folder, "front.sock"))
        yield front
        front.close()


def connect(front: Front, context: "zmq.Context[zmq.Socket[bytes]]") -> "zmq.Socket[bytes]":
    dealer = context.socket(zmq.DEALER)
    dealer.linger = 0
    dealer.rcvtimeo = 5000
    dealer.rcvhwm = 1  # what is not read stays at the pool's side
    dealer.connect(address(front.endpoints[0].socket))
    dealer.send_multipart(encode(wire.Open("a test"), NO_INSTANCE))
    return dealer


def job_of(front: Front, now: float) -> JobArrived:
    """The next job that arrives; earlier messages are handled on the way."""
    for _ in range(100):
        front.endpoints[0].socket.poll(5000)
        for event in front.receive(front.endpoints[0].socket, now):
            assert isinstance(event, JobArrived)
            return event
    raise AssertionError("no job came")


def due(front: Front, now: float) -> float:
    """When the loop would call it; infinite where it would not."""
    return now if front._turn.is_asked else front._turn.instant


def tended(front: Front, now: float) -> list[Event]:
    """As the loop does: nothing where it has not asked for its turn."""
    if due(front, now) > now:
        return []
    front._turn.clear()
    return list(front.tend(now))


def tend_until(front: Front, now: float, later: float) -> list[Event]:
    """As the pool's loop does while nothing comes."""
    told: list[Event] = []
    while now < later:
        now = min(max(due(front, now), now + 0.1), later)
        front._turn.clear()
        told += front.tend(now)
    return told


def submission(job: int, rows: int | None = None) -> Asked:
    return Asked(job, "m", None, None, rows, None, 0, None, 0, False)


def answer(front: Front, action: AnswerJob) -> None:
    """As the only one of an event."""
    front.answer(action)
    front.answered()


def submit(front: Front, dealer: "zmq.Socket[bytes]", now: float, job: int = 1) -> bytes:
    """Sends a job and returns the client's name."""
    dealer.send_multipart(framed(submission(job), INSTANCE, [b"table"]))
    return job_of(front, now).client


def heard_by(dealer: "zmq.Socket[bytes]", front: Front | None = None) -> Message:
    """The next message to a client, after OPENED, while `front` sends what still waits."""
    while True:
        while front is not None and not dealer.poll(10):
            assert tended(front, time.monotonic()) == []
        frames = dealer.recv_multipart()
        message = decode(wire.CLIENT_MESSAGES, frames).message
        if not isinstance(message, wire.Opened):
            return message


def test_a_silent_client_is_gone_and_told_so_and_one_that_pings_is_not(
    front: Front, context: "zmq.Context[zmq.Socket[bytes]]"
) -> None:
    with connect(front, context) as silent, connect(front, context) as alive:
        gone = submit(front, silent, now=100.0)
        submit(front, alive, now=100.0)
        assert tend_until(front, 100.0, 99.0 + SILENCE_S) == []
        alive.send_multipart(encode(wire.Ping(), INSTANCE))
        front.endpoints[0].socket.poll(5000)
        assert list(front.receive(front.endpoints[0].socket, now=99.0 + SILENCE_S)) == []
        assert tend_until(front, 99.0 + SILENCE_S, 101.0 + SILENCE_S) == [ClientGone(gone)]
        told = heard_by(silent)
        assert isinstance(told, wire.Farewell)
        assert "the pool heard nothing from this client for 30 s" in told.text
        assert not told.unread
        assert isinstance(heard_by(alive), wire.Pong)


def test_a_client_that_waits_for_nothing_is_forgotten_without_a_word(
    front: Front, context: "zmq.Context[zmq.Socket[bytes]]"
) -> None:
    with connect(front, context) as dealer:
        client = submit(front, dealer, now=1.0)
        answer(front, AnswerJob(client, 1, JobFailed(Fault.MODEL_FAILED, "text")))
        assert isinstance(heard_by(dealer), wire.Failure)
        assert tend_until(front, 1.0, 3.0 + SILENCE_S) == [ClientGone(client)]
        assert due(front, 100.0) == math.inf
        submit(front, dealer, now=100.0, job=2)
        assert not dealer.poll(100), "it was told nothing and goes on"


def test_the_calls_of_a_client_go_with_it_and_it_is_told_to_register_anew(
    front: Front, context: "zmq.Context[zmq.Socket[bytes]]"
) -> None:
    numbers = Numbers()
    with connect(front, context) as dealer:
        dealer.send_multipart(numbers.said(submission(1), [b"table"], INSTANCE))
        client = job_of(front, now=1.0).client
        assert front.call_bytes == call_bytes(submission(1).names, len(b"table"), 0)
        answer(front, AnswerJob(client, 1, JobFailed(Fault.MODEL_FAILED, "text")))
        assert isinstance(heard_by(dealer), wire.Failure)
        assert ClientGone(client) in tend_until(front, 1.0, 3.0 + SILENCE_S)
        assert front.call_bytes == 0
        dealer.send_multipart(numbers.said(submission(2), [b"table"], INSTANCE))
        front.endpoints[0].socket.poll(5000)
        assert list(front.receive(front.endpoints[0].socket, now=100.0)) == []
        assert heard_by(dealer) == wire.Unregistered(2)
        assert heard_by(dealer) == wire.Released(2)
        submit(front, dealer, now=100.0, job=2)


def test_a_pool_that_was_frozen_does_not_take_its_clients_for_silent(
    front: Front, context: "zmq.Context[zmq.Socket[bytes]]"
) -> None:
    with connect(front, context) as dealer:
        client = submit(front, dealer, now=100.0)
        tended(front, 100.0)
        dealer.send_multipart(encode(wire.Ping(), INSTANCE))  # into the frozen pool
        assert tended(front, 4000.0) == []
        assert front.endpoints[0].socket.poll(5000)
        assert list(front.receive(front.endpoints[0].socket, now=4000.0)) == []
        assert tend_until(front, 4000.0, 4000.0 + SILENCE_S) == []
        assert tend_until(front, 4000.0 + SILENCE_S, 4001.0 + SILENCE_S) == [ClientGone(client)]
        assert due(front, 0.0) == math.inf


def test_whatever_gives_the_front_something_to_do_asks_for_its_turn(
    front: Front, context: "zmq.Context[zmq.Socket[bytes]]"
) -> None:
    """Nobody calls it otherwise: what is forgotten here waits for seconds, or for ever."""
    now = time.monotonic()
    turn = front._turn

    def hear(dealer: "zmq.Socket[bytes]", message: Message) -> None:
        tended(front, now)
        turn.clear()
        dealer.send_multipart(encode(message, INSTANCE))
        assert front.endpoints[0].socket.poll(5000)
        assert list(front.receive(front.endpoints[0].socket, now)) == []

    with connect(front, context) as dealer:
        poison = bytes(5 * STEP_BYTES)
        dealer.send_multipart(framed(submission(1), INSTANCE, [b"table", poison]))
        arrived = job_of(front, now)
        hear(dealer, wire.Ping())
        assert (turn.is_asked, turn.instant) == (False, now + LOOK_S), "somebody is there who may fall silent"
        hear(dealer, wire.Ask(1, "status", ""))
        assert turn.is_asked, "a question"
        assert front.next_question() is not None

        turn.clear()
        assert isinstance(arrived.payload, Inputs)
        front.quarantined(arrived.payload, now)
        assert turn.is_asked, "inputs that are to be read"
        steps = 0
        while turn.is_asked:
            assert tended(front, now) == []
            steps += 1
        assert 3 <= steps <= 6, "and a turn for each step"

        turn.clear()
        while not front._outboxes:
            answer(front, AnswerJob(arrived.client, 1, JobFailed(Fault.MODEL_FAILED, "x" * 100_000)))
        assert due(front, now) <= now, "a message that waits for room"
        assert tended(front, now) == []
        assert now < due(front, now) <= now + 0.1
        turn.clear()
        front.on_readable()
        assert turn.is_asked, "there may be room"


def test_a_client_that_went_away_is_noticed_when_it_is_answered(
    front: Front, context: "zmq.Context[zmq.Socket[bytes]]"
) -> None:
    with connect(front, context) as dealer:
        dealer.send_multipart(framed(submission(1), INSTANCE, [b"table"]))
        client = job_of(front, now=1.0).client
    failed = AnswerJob(client, 1, JobFailed(Fault.MODEL_FAILED, "text"))
    for _ in range(1000):  # until libzmq has seen the end of the connection
        answer(front, failed)
        gone = tended(front, 1.0)
        if gone:
            assert gone == [ClientGone(client)]
            return
        front.endpoints[0].socket.poll(10)
    raise AssertionError("its end was not noticed")


def test_a_slow_reader_is_bounded_and_loses_nothing_within_the_bound(
    front: Front, context: "zmq.Context[zmq.Socket[bytes]]"
) -> None:
    with connect(front, context) as dealer:
        dealer.send_multipart(framed(submission(1), INSTANCE, [b"table"]))
        client = job_of(front, now=1.0).client
        text = "x" * 100_000  # more than a socket's buffer together, so the pipe fills, and less than the credit
        sent = 0
        while not front._outboxes:
            answer(front, AnswerJob(client, sent, JobFailed(Fault.MODEL_FAILED, text)))
            sent += 1
            assert sent < 20_000
        for _ in range(MOST_REPLIES - 5):
            answer(front, AnswerJob(client, sent, JobFailed(Fault.MODEL_FAILED, text)))
            sent += 1
        assert tended(front, 1.0) == []
        received: list[Any] = []
        while len(received) < sent:
            message = heard_by(dealer, front)
            assert isinstance(message, wire.Failure)
            received.append(message.job)
        assert received == list(range(sent))


def fill(front: Front, client: bytes, text: str) -> list[Event]:
    """Answers that nobody reads, until the client is dropped."""
    for number in range(20_000):
        answer(front, AnswerJob(client, number, JobFailed(Fault.MODEL_FAILED, text)))
        if gone := tended(front, 1.0):
            return gone
    raise AssertionError("it was never dropped")


def test_a_reader_that_never_reads_is_dropped_and_told_so_when_it_reads(
    front: Front, context: "zmq.Context[zmq.Socket[bytes]]"
) -> None:
    with connect(front, context) as dealer:
        client = submit(front, dealer, now=1.0)
        assert fill(front, client, "x" * 200_000) == [ClientGone(client)]
        while isinstance(told := heard_by(dealer, front), wire.Failure):
            pass
        assert isinstance(told, wire.Refusal)
        assert "does not read its answers" in told.text
        tended(front, time.monotonic())
        assert not front._outboxes, "nothing is left to send"


def test_a_farewell_that_is_never_read_is_forgotten_by_and_by(
    front: Front, context: "zmq.Context[zmq.Socket[bytes]]"
) -> None:
    with connect(front, context) as dealer:
        client = submit(front, dealer, now=1.0)
        fill(front, client, "x" * 40_000)  # so that libzmq's pipe is full before ours
        assert front._outboxes.waiting(client) == 1
        assert tend_until(front, 1.0, 2.0 + SILENCE_S) == [ClientGone(client)]
        assert front._outboxes.clients() == [client], "one farewell, again"


@pytest.mark.promise(6)
def test_answers_that_nobody_reads_are_bounded_in_bytes(
    front: Front, context: "zmq.Context[zmq.Socket[bytes]]"
) -> None:
    with connect(front, context) as dealer:
        client = submit(front, dealer, now=1.0)
        done = JobDone(((zmq.Frame(bytes(CREDIT // 4)),),), TIMELINE)
        number = 0
        while not tended(front, 1.0):
            answer(front, AnswerJob(client, number, done))
            number += 1
            assert number < 1000
            assert front.unread_bytes <= CREDIT + CREDIT // 4 + PIPE_BYTES
        # The credit's four, and those that the kernel and the reader's end hold.
        assert number <= 4 + 5 < SEND_HIGH_WATER_MARK
        assert MOST_REPLIES > 4 + 5, "it was not their number"
        assert front.unread_bytes >= CREDIT // 4, "what its pipe holds is there until it goes, and is told"
        assert front._outboxes.waiting(client) <= 1


def test_a_second_job_with_the_number_of_one_that_is_here_keeps_no_memory(
    front: Front, context: "zmq.Context[zmq.Socket[bytes]]"
) -> None:
    with connect(front, context) as dealer:
        client = submit(front, dealer, now=1.0)
        segment = front._shared_memory.lend(client, MemoryRequest(1, SEGMENT_BYTES))
        assert segment is not None
        lent = replace(submission(2), lent=(Lent(0, segment.number, 0, 64),))
        for _ in range(2):
            dealer.send_multipart(framed(lent, INSTANCE, [b"table", b""]))
        dealer.send_multipart(framed(submission(3), INSTANCE, [b"table"]))
        assert [job_of(front, now=1.0).job for _ in range(2)] == [2, 3]
        refusal = heard_by(dealer)
        assert isinstance(refusal, wire.Failure)
        assert (refusal.job, "job 2 is already in the pool" in refusal.text) == (2, True)
        answer(front, AnswerJob(client, 2, JobFailed(Fault.MODEL_FAILED, "", None)))
        front._shared_memory.take_back(client)
        assert front._shared_memory.lent_bytes == 0


def test_a_chunk_takes_one_number_and_its_memory_is_its_clients_again_with_the_unpack(
    front: Front, context: "zmq.Context[zmq.Socket[bytes]]"
) -> None:
    with connect(front, context) as dealer:
        client = submit(front, dealer, now=1.0, job=9)
        segment = front._shared_memory.lend(client, MemoryRequest(1, SEGMENT_BYTES))
        assert segment is not None
        lent = replace(submission(1, rows=3), weight=3, lent=(Lent(0, segment.number, 0, 24),))
        dealer.send_multipart(framed(lent, INSTANCE, [TABLE, b""]))
        assert job_of(front, now=1.0).weight == 3
        submit(front, dealer, now=1.0, job=2)
        dealer.send_multipart(encode(wire.Cancel(1, member=True), INSTANCE))
        front.endpoints[0].socket.poll(5000)
        assert list(front.receive(front.endpoints[0].socket, now=1.0)) == [JobCancelled(client, 1, member=True)]
        front.unpacked(UnpackChunk(client, 1, Unpacking.CANCELLED, False, "why"))
        assert heard_by(dealer) == wire.Unpack(1, Unpacking.CANCELLED, False, "why")
        assert heard_by(dealer) == wire.Released(1)
        again = replace(submission(3, rows=2), weight=2, origin=1)
        dealer.send_multipart(framed(again, INSTANCE, [TABLE, bytes(16)]))
        assert job_of(front, now=1.0).origin == 1


def test_what_the_pool_has_not_come_to_read_stays_with_its_sender(
    front: Front, context: "zmq.Context[zmq.Socket[bytes]]"
) -> None:
    """It would be on nobody's books, and there still when its sender has long closed and connected anew."""
    with context.socket(zmq.DEALER) as dealer:
        dealer.linger = 0
        dealer.sndhwm = 1
        dealer.connect(address(front.endpoints[0].socket))
        number = 0
        while dealer.poll(200, zmq.POLLOUT):
            dealer.send_multipart([b"", b"", bytes(1 << 20)])
            number += 1
            assert number < 1000
        assert number <= RECEIVE_HIGH_WATER_MARK + 4


def test_what_a_client_reads_does_not_count_any_more(front: Front, context: "zmq.Context[zmq.Socket[bytes]]") -> None:
    with connect(front, context) as dealer:
        client = submit(front, dealer, now=1.0)
        done = JobDone(((zmq.Frame(bytes(PIPE_BYTES // 2)),),), TIMELINE)
        for number in range(40):  # many times the credit
            answer(front, AnswerJob(client, number, done))
            assert isinstance(heard_by(dealer, front), wire.Results)
        eventually(lambda: not front.unread_bytes)  # libzmq's thread lets go of the last one after its reader has it


def test_the_pieces_of_a_split_answer_count_with_every_frame(
    front: Front, context: "zmq.Context[zmq.Socket[bytes]]"
) -> None:
    with connect(front, context) as dealer:
        client = submit(front, dealer, now=1.0)
        pieces = tuple(tuple(zmq.Frame(bytes(CREDIT // 32)) for _ in range(2)) for _ in range(4))
        number = 0
        while not tended(front, 1.0):
            answer(front, AnswerJob(client, number, JobDone(pieces, TIMELINE)))
            number += 1
            assert number < 1000
        # As above: a quarter of the credit each, whatever it is made of.
        assert number <= 4 + 5
        assert front._outboxes.waiting(client) <= 1, "the farewell"


def test_empty_pieces_are_not_free(front: Front, context: "zmq.Context[zmq.Socket[bytes]]") -> None:
    with connect(front, context) as dealer:
        client = submit(front, dealer, now=1.0)
        empty = JobDone(tuple((zmq.Frame(b""),) for _ in range(CREDIT // FRAME_BYTES // 4)), TIMELINE)
        for number in range(1000):
            answer(front, AnswerJob(client, number, empty))
            if tended(front, 1.0):
                break
        else:
            raise AssertionError("it was never dropped")
        assert front._outboxes.waiting(client) <= 1


def test_one_large_answer_may_wait(front: Front, context: "zmq.Context[zmq.Socket[bytes]]") -> None:
    with connect(front, context) as dealer:
        client = submit(front, dealer, now=1.0)
        large = JobDone(((zmq.Frame(bytes(2 * CREDIT)),),), TIMELINE)
        number = 0
        while client not in front._outboxes:
            answer(front, AnswerJob(client, number, large))
            number += 1
        assert tended(front, 1.0) == []
        answer(front, AnswerJob(client, number, large))
        assert tended(front, 1.0) == [ClientGone(client)]


def test_answers_that_wait_when_the_pool_stops_are_handed_over(
    front: Front, context: "zmq.Context[zmq.Socket[bytes]]", monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine the reader may not run for longer than a pool that ends would wait for it.
    monkeypatch.setattr("pool.serve.front.FLUSH_S", 30.0)
    monkeypatch.setattr("pool.serve.front.STALL_S", 30.0)
    front.endpoints[0].socket.linger = 30_000
    with connect(front, context) as dealer:
        client = submit(front, dealer, now=1.0)
        sent = 0
        while not front._outboxes or front._outboxes.waiting(client) < 20:
            answer(front, AnswerJob(client, sent, JobFailed(Fault.MODEL_FAILED, "x" * 200_000)))
            sent += 1
        closing = threading.Thread(target=front.close)
        closing.start()
        jobs: list[Any] = []
        while len(jobs) < sent:
            message = heard_by(dealer)
            assert isinstance(message, wire.Failure)
            jobs.append(message.job)
        closing.join(5)
        assert jobs == list(range(sent))


def test_an_ending_pool_waits_until_its_clients_know(
    front: Front, context: "zmq.Context[zmq.Socket[bytes]]", monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no longer: half a second is an hour here."""
    monkeypatch.setattr(front_module, "PART_S", 3600.0)
    with connect(front, context) as dealer:
        client = submit(front, dealer, now=time.monotonic())
        answer(front, AnswerJob(client, 1, JobFailed(Fault.MODEL_FAILED, "text")))
        dealer.send_multipart(framed(submission(2), INSTANCE, [b"table"]))
        leaving = threading.Thread(target=front.part, args=("it has ended",), daemon=True)
        leaving.start()
        assert isinstance(heard_by(dealer), wire.Failure)
        told = heard_by(dealer)
        assert told == wire.Farewell("it has ended", unread=True)
        dealer.send_multipart(encode(wire.Close(), INSTANCE))
        leaving.join(20)
        assert not leaving.is_alive()
        assert not dealer.poll(50), "what came too late has no answer"


def test_it_does_not_wait_long_for_one_who_says_nothing(
    front: Front, context: "zmq.Context[zmq.Socket[bytes]]"
) -> None:
    """It ends while the silent one still counts as alive."""
    with connect(front, context) as frozen, connect(front, context) as dead:
        silent = submit(front, frozen, now=time.monotonic())
        submit(front, dead, now=time.monotonic())
        dead.close(linger=0)
        began = time.monotonic()
        front.part("it has ended")
        assert time.monotonic() - began >= PART_S
        now, told = began + PART_S, []
        while due(front, now) < math.inf:
            now = max(due(front, now), now + 0.1)
            told += tended(front, now)
        assert ClientGone(silent) in told


def test_closing_does_not_wait_for_one_who_does_not_read(
    front: Front, context: "zmq.Context[zmq.Socket[bytes]]", monkeypatch: pytest.MonkeyPatch
) -> None:
    """One who reads now and then is waited for: for longer than a test may take."""
    monkeypatch.setattr(clients_front, "FLUSH_S", 3600.0)
    with connect(front, context) as dealer:
        client = submit(front, dealer, now=1.0)
        number = 0
        while not front._outboxes.waiting(client):
            number += 1
            answer(front, AnswerJob(client, number, JobFailed(Fault.MODEL_FAILED, "x" * 200_000)))
        front.close()


def test_a_message_of_countless_frames_is_refused_and_stalls_nobody(
    front: Front, context: "zmq.Context[zmq.Socket[bytes]]"
) -> None:
    with connect(front, context) as flooder, connect(front, context) as polite:
        flooder.send_multipart([*framed(submission(1), INSTANCE), *([b""] * 3 * FRAMES_A_TURN)])
        flooder.send_multipart(framed(submission(2), INSTANCE, [b"table"]))
        assert job_of(front, now=1.0).job == 2
        told = heard_by(flooder)
        assert isinstance(told, wire.Refusal)
        assert f"more than {MOST_FRAMES} frames" in told.text
        assert sum(front.refused.values()) == 1
        submit(front, polite, now=1.0)


def test_empty_frames_are_not_free(front: Front, context: "zmq.Context[zmq.Socket[bytes]]") -> None:
    with connect(front, context) as dealer:
        large = bytes(SMALL_BYTES + 1)
        frames = framed(submission(1), INSTANCE, [b"table", *([b""] * 1000), large])
        assert [len(frame) for frame in frames[1:]] == [len(large)], "the others share the first"
        dealer.send_multipart(frames)
        whole = sum(map(len, frames)) + 2 * FRAME_BYTES
        call = call_bytes(submission(1).names, len(b"table"), 0)
        assert job_of(front, now=1.0).size_bytes == whole + 1001 * VIEW_BYTES + call


def test_frames_of_no_client_are_counted(front: Front, context: "zmq.Context[zmq.Socket[bytes]]") -> None:
    with context.socket(zmq.DEALER) as dealer:
        dealer.linger = 500
        dealer.connect(address(front.endpoints[0].socket))
        for junk in ([b""], [b"", b""], [b"x" * 14, b""], [b"TFWP"]):
            dealer.send_multipart(junk)
        while sum(front.refused.values()) < 4:
            assert front.endpoints[0].socket.poll(5000)
            assert list(front.receive(front.endpoints[0].socket, now=1.0)) == []


# --- jobs


def test_a_job_with_rows_arrives_with_its_form(front: Front, context: "zmq.Context[zmq.Socket[bytes]]") -> None:
    with connect(front, context) as dealer:
        numbers = Numbers()
        sent = []
        for job in (1, 2):
            asked = Asked(job, "m", "s", ("y", "z"), 3, 2.5, -7, "gpu:0", 2, True)
            sent.append(numbers.said(asked, [TABLE, bytes(24)], INSTANCE))
            dealer.send_multipart(sent[-1])
        assert [len(frames) for frames in sent] == [1, 1]
        assert len(sent[0][0]) > len(sent[1][0]) == 68 + 4 + 24, "the second has no names"
        first, second = job_of(front, now=1.0), job_of(front, now=1.0)
        assert (first.model, first.signature, first.outputs) == ("m", "s", ("y", "z"))
        assert (first.rows, first.timeout_s, first.priority, first.device) == (3, 2.5, -7, "gpu:0")
        assert (first.attempts, first.in_doubt) == (2, True)
        assert (first.model, first.signature, first.outputs) == (second.model, second.signature, second.outputs)
        call = call_bytes(asked.names, len(TABLE), 1)
        assert second.size_bytes == len(sent[1][0]) + FRAME_BYTES + VIEW_BYTES + call, "and what its call takes"
        assert first.form == TABLE
        assert first.form is second.form, "a thousand jobs that wait share it"
        assert isinstance(first.payload, Inputs)
        (piece,) = first.payload.cut(1, 2)
        assert isinstance(piece, memoryview)
        assert len(piece) == 8


def test_nothing_is_read_of_a_job_without_rows(front: Front, context: "zmq.Context[zmq.Socket[bytes]]") -> None:
    with connect(front, context) as dealer:
        dealer.send_multipart(framed(submission(1), INSTANCE, [b"\xc1 not a table", b"x"]))
        arrived = job_of(front, now=1.0)
        assert arrived.rows is None
        assert arrived.form == b"\xc1 not a table"
        assert isinstance(arrived.payload, Inputs)
        assert list(arrived.payload.cut(0, 0)) == [b"x"]


@pytest.mark.parametrize(
    ("rows", "payload", "told"),
    [
        (None, [], "it has no table"),
        (None, [bytes(TABLE_BYTES + 1)], "a table of 1048577 bytes; at most 1048576 are allowed"),
        (3, [bytes(TABLE_BYTES + 1), b""], "a table of 1048577 bytes; at most 1048576 are allowed"),
        (3, [TABLE, bytes(25)], "input 'x', float32 [?, 2]: 25 bytes where 3 rows have 24"),
        (3, [TABLE], "0 buffers for 1 tensors"),
        (0, [TABLE, b""], "no rows in a call that counts them"),
        (1 << 40, [TABLE, b""], "it has 4294967295 rows"),
        (3, [b"\xc1", b""], "its table is not msgpack"),
        (3, [pack(Table((TensorHeader("x", "float32", (3, 2), False),))), bytes(24)], "input 'x': no shape of rows"),
    ],
)
def test_a_job_whose_rows_are_not_there_is_answered_and_the_client_goes_on(
    front: Front, context: "zmq.Context[zmq.Socket[bytes]]", rows: int | None, payload: list[bytes], told: str
) -> None:
    with connect(front, context) as dealer:
        dealer.send_multipart(framed(submission(7, rows), INSTANCE, payload))
        submit(front, dealer, now=1.0, job=8)
        failure = heard_by(dealer)
        assert isinstance(failure, wire.Failure)
        assert (failure.job, failure.fault, failure.retry_after_s) == (7, Fault.INVALID_INPUT, None)
        assert failure.text.startswith(f"the job cannot be read: {told}")
        assert sum(front.refused.values()) == 1
        (client,) = front._clients.present()
        assert list(client.owed) == [8]


def test_an_answer_says_how_many_frames_each_piece_has(front: Front, context: "zmq.Context[zmq.Socket[bytes]]") -> None:
    with connect(front, context) as dealer:
        client = submit(front, dealer, now=1.0)
        pieces = ([zmq.Frame(b"a"), zmq.Frame(b"b")], [zmq.Frame(b"c")])
        answer(front, AnswerJob(client, 1, JobDone(pieces, TIMELINE)))
        dealer.recv_multipart()
        assert results_of(dealer.recv_multipart()) == ([wire.Result(1, (2, 1), TIMELINE)], [b"a", b"b", b"c"])


def results_of(frames: list[bytes]) -> tuple[list[wire.Result], list[bytes]]:
    envelope = decode(wire.CLIENT_MESSAGES, frames)
    assert isinstance(envelope.message, wire.Results)
    return list(envelope.message.results), list(map(bytes, envelope.payload))


def test_what_one_event_answers_a_client_is_one_message(
    front: Front, context: "zmq.Context[zmq.Socket[bytes]]"
) -> None:
    with connect(front, context) as dealer, connect(front, context) as other:
        client, neighbour = (submit(front, each, now=1.0) for each in (dealer, other))
        for number in range(1, 4):
            front.answer(AnswerJob(client, number, JobDone(([zmq.Frame(b"%d" % number)],), TIMELINE)))
        front.answer(AnswerJob(neighbour, 1, JobDone(([zmq.Frame(b"x")],), TIMELINE)))
        front.answered()
        for each in (dealer, other):
            each.recv_multipart()
        results = [wire.Result(number, (1,), TIMELINE) for number in range(1, 4)]
        assert results_of(dealer.recv_multipart()) == (results, [b"1", b"2", b"3"])
        assert results_of(other.recv_multipart()) == ([wire.Result(1, (1,), TIMELINE)], [b"x"])
        front.answered()
        assert not dealer.poll(50)


def test_what_is_said_to_a_client_after_its_results_comes_after_them(
    front: Front, context: "zmq.Context[zmq.Socket[bytes]]"
) -> None:
    with connect(front, context) as dealer:
        client = submit(front, dealer, now=1.0)
        for number in (1, 2):
            front.answer(AnswerJob(client, number, JobDone(([zmq.Frame(b"a")],), TIMELINE)))
        front.answer(AnswerJob(client, 3, JobFailed(Fault.MODEL_FAILED, "text")))
        dealer.recv_multipart()
        assert len(results_of(dealer.recv_multipart())[0]) == 2
        assert isinstance(heard_by(dealer), wire.Failure)


def test_many_or_large_results_do_not_wait_for_more(front: Front, context: "zmq.Context[zmq.Socket[bytes]]") -> None:
    with connect(front, context) as dealer:
        client = submit(front, dealer, now=1.0)
        large = zmq.Frame(bytes(LETTER_BYTES))
        front.answer(AnswerJob(client, 1, JobDone(([zmq.Frame(b"a")],), TIMELINE)))
        front.answer(AnswerJob(client, 2, JobDone(([large],), TIMELINE)))
        dealer.recv_multipart()
        results, payload = results_of(dealer.recv_multipart())
        assert (len(results), [len(each) for each in payload]) == (2, [1, LETTER_BYTES])
        for number in range(LETTER_JOBS + 1):
            front.answer(AnswerJob(client, number, JobDone(([zmq.Frame(b"a")],), TIMELINE)))
        assert len(results_of(dealer.recv_multipart())[0]) == LETTER_JOBS
        front.answered()
        assert len(results_of(dealer.recv_multipart())[0]) == 1


def test_a_refusal_says_when_to_come_again(front: Front, context: "zmq.Context[zmq.Socket[bytes]]") -> None:
    with connect(front, context) as dealer:
        client = submit(front, dealer, now=1.0)
        answer(front, AnswerJob(client, 1, JobFailed(Fault.OVERLOADED, "full", 0.25)))
        assert heard_by(dealer) == wire.Failure(1, Fault.OVERLOADED, "full", 0.25)


def test_a_question_says_what_it_is_about(front: Front, context: "zmq.Context[zmq.Socket[bytes]]") -> None:
    with connect(front, context) as dealer:
        dealer.send_multipart(encode(wire.Ask(5, "explain", "41"), INSTANCE))
        while (question := front.next_question()) is None:
            assert front.endpoints[0].socket.poll(5000)
            assert list(front.receive(front.endpoints[0].socket, now=1.0)) == []
        assert (question.what, question.about, question.standing.may) == ("explain", "41", RIGHTS)


def test_questions_are_bounded_for_each_client_and_the_clients_take_turns(
    front: Front, context: "zmq.Context[zmq.Socket[bytes]]"
) -> None:
    """Each answer costs as much as many jobs: a flood of questions is no way past the bounds of a queue."""
    with connect(front, context) as flood, connect(front, context) as polite:
        for number in range(5 * MOST_WAITING):
            flood.send_multipart(encode(wire.Ask(number, "status", ""), INSTANCE))
        refused: list[Message] = []
        now = 1.0
        while len(refused) < 4 * MOST_WAITING:  # answered at once, before any of the others
            now += RETRY_S
            front.endpoints[0].socket.poll(10)
            assert list(front.receive(front.endpoints[0].socket, now)) == []
            assert tended(front, now) == []  # what found no room at once is sent
            while flood.poll(1):
                frames = flood.recv_multipart()
                message = decode(wire.CLIENT_MESSAGES, frames).message
                refused += [message] if isinstance(message, wire.Answer) else []
        assert {message.error for message in refused if isinstance(message, wire.Answer)} == {
            f"{MOST_WAITING} questions of this client already wait for answers"
        }
        polite.send_multipart(encode(wire.Ask(1, "status", ""), INSTANCE))
        front.endpoints[0].socket.poll(5000)
        assert list(front.receive(front.endpoints[0].socket, now=1.0)) == []
        assert due(front, 1.0) == 1.0, "the loop does not sleep on them"
        first, second = front.next_question(), front.next_question()
        assert first is not None
        assert second is not None
        assert first.client != second.client
        left = 0
        while front.next_question() is not None:
            left += 1
        assert left == MOST_WAITING - 1


def test_a_job_that_looks_like_a_quarantined_one_is_compared_while_others_arrive(
    front: Front, context: "zmq.Context[zmq.Socket[bytes]]"
) -> None:
    """All of its inputs is read, in steps: nobody waits for the hash of a gigabyte."""
    steps = 6
    octets = bytes(steps * STEP_BYTES)

    def send(dealer: "zmq.Socket[bytes]", job: int, inputs: bytes) -> None:
        dealer.send_multipart(framed(replace(submission(job), timeout_s=9.0), INSTANCE, [b"table", inputs]))

    with connect(front, context) as dealer, connect(front, context) as polite:
        send(dealer, 1, octets)
        poison = job_of(front, now=1.0)
        assert isinstance(poison.payload, Inputs)
        front.quarantined(poison.payload, now=2.0)
        answer(front, AnswerJob(poison.client, 1, JobFailed(Fault.QUARANTINED, "it kills", None)))
        for _ in range(steps):
            assert tended(front, 2.0) == []
        assert isinstance(heard_by(dealer), wire.Failure)

        other = bytearray(octets)
        other[len(octets) // 2] = 1
        send(dealer, 2, bytes(other))  # of the same samples
        send(dealer, 3, octets)
        send(dealer, 4, octets)
        dealer.send_multipart(encode(wire.Cancel(4), INSTANCE))
        came: list[Event] = []
        while not came:
            front.endpoints[0].socket.poll(5000)
            came += front.receive(front.endpoints[0].socket, now=5.0)
        assert came == [JobCancelled(poison.client, 4)]
        assert due(front, 5.0) == 5.0, "the loop does not sleep on them"
        send(polite, 1, octets[:9])
        assert job_of(front, now=5.0).client != poison.client, "who sends another job does not wait for them"
        turns = 0
        while len(came) == 1:
            came += tended(front, 6.0)
            turns += 1
        assert turns > steps // 2, "none of which read all"
        for _ in range(2 * steps):
            came += tended(front, 6.0)
        (_, arrived) = came
        assert isinstance(arrived, JobArrived)
        assert (arrived.job, arrived.timeout_s) == (2, 8.0)
        refused = heard_by(dealer)
        assert isinstance(refused, wire.Failure)
        assert (refused.job, refused.fault) == (3, Fault.QUARANTINED)
        assert not dealer.poll(50), "and of the cancelled one nothing is said"


def test_other_terms_are_told_with_the_next_message_and_once(
    front: Front, context: "zmq.Context[zmq.Socket[bytes]]"
) -> None:
    def heard(dealer: "zmq.Socket[bytes]") -> Message:
        """The next message to it, OPENED too. What it has sent may come here one by one."""
        while not dealer.poll(10):
            assert list(front.receive(front.endpoints[0].socket, now=100.0)) == []
        return decode(wire.CLIENT_MESSAGES, dealer.recv_multipart()).message

    def ask(dealer: "zmq.Socket[bytes]", message: Message) -> Message:
        dealer.send_multipart(encode(message, INSTANCE))
        return heard(dealer)

    def opened(credit: int, timeout_s: float) -> wire.Opened:
        return wire.Opened("0", credit, timeout_s)

    with connect(front, context) as dealer:
        assert ask(dealer, wire.Ping()) == opened(CREDIT, 60.0)
        assert ask(dealer, wire.Ping()) == wire.Pong()
        assert heard(dealer) == wire.Pong()
        front.adopt(opened(CREDIT // 2, 9.0), MOST_REPLIES, Standings())
        assert not dealer.poll(50), "not before it says something"
        assert ask(dealer, wire.Ping()) == opened(CREDIT // 2, 9.0)
        assert heard(dealer) == wire.Pong()
        assert ask(dealer, wire.Ping()) == wire.Pong(), "once"
        front.adopt(opened(2 * CREDIT, 9.0), MOST_REPLIES, Standings())
        assert ask(dealer, wire.Ping()) == opened(CREDIT, 9.0), "no more than the socket takes"
        with connect(front, context) as late:
            assert ask(late, wire.Ping()) == opened(CREDIT, 9.0)
            assert ask(late, wire.Ping()) == wire.Pong(), "who opens is told anyway"
