"""What goes wrong while one peer is read or answered ends that peer, is counted, and is logged once.

The mistakes are those of parts that the front, the back, the listener and `Admin` are given: memory that raises.
"""

import logging
import random
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zmq

from pool.clock.alarms import Alarms
from pool.core.actions import JobFailed
from pool.core.events import ClientGone, Event, Start, WorkerBroken, WorkerHello
from pool.core.machine import Machine
from pool.core.policy import Policy, SlotPlan
from pool.devices import Device
from pool.recorder import Recorder, Shelf
from pool.serve.admin import Admin
from pool.serve.back import CannotSay
from pool.serve.front import Question
from pool.serve.handouts import Handouts
from pool.serve.layouts import Column, Layout
from pool.serve.loop import CoreFault
from pool.serve.rows import Inputs
from pool.serve.shared_memory import Region, Segment, SharedMemory
from pool.serve.standing import ANYBODY
from pool.wire import client_messages as wire
from pool.wire import worker_messages
from pool.wire.faults import Fault
from pool.wire.frames import NO_INSTANCE, decode, encode
from pool.wire.lent import AnswerSpace
from pool.wire.message import Message
from pool.wire.segment import MemoryRequest
from pool.wire.timeline import Timeline
from simulation.driver import AnswerJob, JobArrived, JobDone, PartToRun, RunBatch, followed
from support.asked import Asked, framed
from support.heard import HeardBack as Back
from support.heard import HeardFront as Front
from support.heard import address

INSTANCE = b"instance"
SECRET = b"s" * 32
SETTINGS = worker_messages.TensorFlowSettings(True, 0.0, True, False, 0, 0, {}, False)
WELCOME = worker_messages.Welcome(1, 0, 1.0, SETTINGS, ())
SUBMIT = Asked(1, "m", None, None, None, None, 0, None, 0, False)
TIMELINE = Timeline(41, 0.5, 0.0, 0.0, 0.0, 0.0, rows=3, batch_rows=3, slot=0, device="cpu:0", attempts=1 << 70)


class Bewildered(SharedMemory):
    """Books that raise what nobody expects."""

    def buffer(self, client: bytes, number: int, offset: int, size_bytes: int) -> Region:
        raise RuntimeError(f"{size_bytes} bytes at {offset} of segment {number} are a riddle of {len(client)} bytes")

    def lend(self, client: bytes, request: MemoryRequest) -> Segment | None:
        raise RuntimeError(f"lending {request.most_bytes} bytes is a riddle of {len(client)} bytes")


@pytest.fixture(autouse=True)
def _log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("pool"), "propagate", True)


@pytest.fixture
def context() -> "Iterator[zmq.Context[zmq.Socket[bytes]]]":
    with zmq.Context() as context:
        yield context


Connect = Callable[[str], "zmq.Socket[bytes]"]


@pytest.fixture
def connect(context: "zmq.Context[zmq.Socket[bytes]]") -> Iterator[Connect]:
    """Peers by hand, which are gone afterwards."""
    with ExitStack() as stack:

        def connect(endpoint: str) -> "zmq.Socket[bytes]":
            dealer = stack.enter_context(context.socket(zmq.DEALER))
            dealer.linger = 0
            dealer.rcvtimeo = 5000
            dealer.connect(endpoint)
            return dealer

        yield connect


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pc-") as folder:
        yield Path(folder)


@pytest.fixture
def front(context: "zmq.Context[zmq.Socket[bytes]]", folder: Path) -> Iterator[Front]:
    shared_memory, turn = Bewildered(1 << 20, 1 << 20), Alarms().alarm(lambda: None)
    front = Front(context, wire.Opened("0", 1 << 24, 60.0), INSTANCE, 50, shared_memory, turn)
    front.bind_local(folder / "front")
    front.lend(folder / "segments")
    yield front
    front.close()


class Peer:
    def __init__(self, front: Front, connect: Connect) -> None:
        self._front = front
        self.dealer = connect(address(front.endpoints[0].socket))
        assert self.say(wire.Open("a test"), instance=NO_INSTANCE) == []
        opened = self.hear()
        assert isinstance(opened, wire.Opened)
        self.ticket = opened.ticket

    def say(self, message: Message | Asked, *payload: bytes, instance: bytes = INSTANCE) -> list[Event]:
        self.dealer.send_multipart(framed(message, instance, payload))
        assert self._front.endpoints[0].socket.poll(5000)
        return list(self._front.receive(self._front.endpoints[0].socket, 100.0))

    def ask(self, what: str) -> Question:
        assert self.say(wire.Ask(5, what, "")) == []
        question = self._front.next_question()
        assert question is not None
        return question

    def submit(self, **fields: Any) -> JobArrived:
        (arrived,) = self.say(replace(SUBMIT, **fields), b"table")
        assert isinstance(arrived, JobArrived)
        return arrived

    def hear(self) -> Message:
        frames = self.dealer.recv_multipart()
        return decode(wire.CLIENT_MESSAGES, frames).message


def gone(front: Front) -> list[Event]:
    return list(front.tend(100.0))


def test_a_client_whose_message_cannot_be_read_is_dropped_and_no_other(
    front: Front, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    guilty, other = Peer(front, connect), Peer(front, connect)
    client = guilty.submit().client
    theirs = other.submit().client
    for job in (2, 3):
        submit = replace(SUBMIT, job=job, space=AnswerSpace(7, 0, 64))
        assert guilty.say(submit, b"table") == []
    assert gone(front) == [ClientGone(client)]
    refusal = guilty.hear()
    assert isinstance(refusal, wire.Refusal)
    assert "this client was dropped" in refusal.text
    assert front.refused["the pool failed when it read what it sent: RuntimeError"] == 2
    assert "RuntimeError: 64 bytes at 0 of segment 7 are a riddle of" in caplog.text
    assert caplog.text.count("Traceback") == 1, "once"
    front.answer(AnswerJob(theirs, 1, JobFailed(Fault.MODEL_FAILED, "text")))
    assert isinstance(other.hear(), wire.Failure)
    assert gone(front) == []


def test_a_client_whose_answer_cannot_be_said_is_dropped_and_no_other(front: Front, connect: Connect) -> None:
    """Alone, as one of several of an event, and as an answer to a question."""
    peers = [Peer(front, connect) for _ in range(4)]
    clients = [peer.submit().client for peer in peers]
    second = peers[1].submit(job=2).client
    assert second == clients[1]
    for client, job in ((clients[0], 1), (clients[1], 1), (clients[1], 2)):
        front.answer(AnswerJob(client, job, JobDone(([b"table"],), TIMELINE)))
    front.reply(Question(clients[2], 1, "status", "", ANYBODY), {"too large": 1 << 70})
    front.answer(AnswerJob(clients[3], 1, JobFailed(Fault.MODEL_FAILED, "text")))
    front.answered()
    assert set(gone(front)) == {ClientGone(client) for client in clients[:3]}
    for peer in peers[:3]:
        assert isinstance(peer.hear(), wire.Refusal)
    assert isinstance(peers[3].hear(), wire.Failure)
    assert sum(front.refused.values()) >= 3


def test_a_client_that_cannot_be_lent_memory_is_gone_and_no_other(front: Front, connect: Connect, folder: Path) -> None:
    guilty, other = Peer(front, connect), Peer(front, connect)
    client, theirs = guilty.submit().client, other.submit().client
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as link:
        link.connect(str(folder / "segments"))
        link.send(guilty.ticket)
        link.send(MemoryRequest(64, 64).pack())
        while not (found := gone(front)):
            front.on_readable()
    assert found == [ClientGone(client)]
    assert front.refused == {"the pool failed when it lent memory: RuntimeError": 1}
    front.answer(AnswerJob(theirs, 1, JobFailed(Fault.MODEL_FAILED, "text")))
    assert isinstance(other.hear(), wire.Failure)


class Riddles(Handouts):
    def ended(self, worker: tuple[int, int], batch: int) -> None:
        if batch == 13:
            raise RuntimeError("batch 13 is a riddle")
        super().ended(worker, batch)


@pytest.fixture
def back(context: "zmq.Context[zmq.Socket[bytes]]", folder: Path) -> Iterator[Back]:
    back = Back(context, folder / "back", INSTANCE, Riddles(lambda *_: False, lambda *_: True))
    back._handouts.regions[0, 1] = {}  # batches of both may lie in segments
    yield back
    back.close()


def test_a_worker_whose_message_cannot_be_read_is_broken_and_no_other(
    back: Back, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    dealers = []
    for slot in (0, 1):
        back.expect(slot, 1, SECRET)
        for lane in (None, 0):
            dealer = connect(back.endpoint)
            dealer.send_multipart(encode(worker_messages.Hello(slot, 1, lane, SECRET), NO_INSTANCE))
            assert back.socket.poll(5000)
            heard = list(back.receive())
            assert heard == ([WorkerHello(slot, 1)] if lane is None else [])
            if lane is None:
                back.welcome(slot, 1, WELCOME)
            dealers.append(dealer)
    for slot in (0, 1):
        done = worker_messages.Done(13 + slot, (), (), 0.0, 0.0)
        dealers[2 * slot + 1].send_multipart(encode(done, INSTANCE))
        assert back.socket.poll(5000)
        (event,) = back.receive()
        assert isinstance(event, WorkerBroken) == (slot == 0), event
    assert back.dropped == {"the pool failed when it read a message: RuntimeError": 1}
    assert caplog.text.count("Traceback") == 1


def test_a_run_that_cannot_be_written_is_its_jobs_fault(back: Back) -> None:
    """An owner that cannot travel; and rows that nobody can cut."""
    back._routes[0, 1, 0] = b"route"  # a lane that has gone would not be written to at all
    inputs = Inputs(b"table", [], None, None)
    run = RunBatch(0, 1, 0, 9, "m", None, None, (PartToRun(inputs, 0, 0),), 0, False, owner=1 << 70)
    with pytest.raises(CannotSay, match="when it sent a job to a worker: error"):
        back.run(run)
    layout = Layout(b"table", b"table", (Column(4, False, "x"),), 4)
    uncut = Inputs(b"table", [zmq.Frame(bytes(8))], layout, 2)
    with pytest.raises(CannotSay, match="rows 1 to 9 of 2"):
        back.run(RunBatch(0, 1, 0, 10, "m", None, None, (PartToRun(uncut, 1, 9),), 8, True))
    assert back.dropped == {
        "the pool failed when it sent a job to a worker: error": 1,
        "the pool failed when it sent a job to a worker: AssertionError": 1,
    }


def admin_of(front: Any, feed: Any, pool: Any) -> Admin:
    machine = Machine(Policy(), [SlotPlan(("m",))], random.Random(0))
    machine.handle(Start(), 1.0)
    followed(machine, 1.0)
    recorder = Recorder(machine.fleet, ["cpu:0"], Shelf(None, 0, 0, "here"), {})
    return Admin(
        machine,
        [Device("cpu", (), "cpu:0", "cpu", None)],
        lambda _: [],
        front,
        recorder,
        feed,
        pool,
        lambda *_: None,
        lambda _: [],
    )


def test_a_question_that_cannot_be_answered_is_told_so(
    front: Front, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    def riddle() -> dict[str, Any]:
        raise RuntimeError("the pool is a riddle")

    peer = Peer(front, connect)
    admin = admin_of(front, lambda _: None, riddle)
    for _ in range(2):
        admin.answer(peer.ask("status"))
        answer = peer.hear()
        assert isinstance(answer, wire.Answer)
        assert answer.error == "the pool failed to answer this question: RuntimeError: the pool is a riddle"
    assert caplog.text.count("Traceback") == 1


def test_a_fault_of_the_core_at_a_question_is_not_contained(front: Front, connect: Connect) -> None:
    def feed(_: Event) -> None:
        raise CoreFault("StopAsked: KeyError: 7")

    peer = Peer(front, connect)
    question = peer.ask("stop")
    with pytest.raises(CoreFault):
        admin_of(front, feed, dict).answer(question)
