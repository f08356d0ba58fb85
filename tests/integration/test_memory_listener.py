"""The clients' side of lent memory with clients that lie, flood, stall, and die."""

import contextlib
import os
import random
import resource
import select
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from pool.clock.alarms import Alarms
from pool.core.actions import JobFailed
from pool.core.events import ClientGone, Event, JobCancelled
from pool.loop import descriptors
from pool.serve.front import SILENCE_S
from pool.serve.memory_listener import MOST_STRANGERS, PAUSE_S
from pool.serve.rows import Inputs
from pool.serve.shared_memory import SMALLEST_BYTES, SharedMemory
from pool.wire import client_messages as wire
from pool.wire.calls import ROWS, Table, TensorHeader
from pool.wire.codec import pack
from pool.wire.faults import Fault
from pool.wire.frames import NO_INSTANCE, decode, encode
from pool.wire.lent import AnswerSpace, Lent
from pool.wire.message import Message
from pool.wire.segment import MemoryRequest, attach, receive_grant
from pool.wire.timeline import Timeline
from simulation.driver import AnswerJob, JobArrived, JobDone
from support.asked import Asked, framed
from support.heard import HeardFront as Front
from support.heard import address

pytestmark = pytest.mark.memory

INSTANCE = b"instance"
MIB = 1 << 20
FIRST_S = 5.0  # libzmq's threads may be late on a busy machine
QUIET_S = 0.1
TABLE = pack(Table((TensorHeader("x", "float32", (ROWS, 16), False), TensorHeader("s", "string", (ROWS,), False))))
TIMELINE = Timeline(41, 0.5, 0.0, 0.0, 0.0, 0.0, rows=3, batch_rows=3, slot=0, device="cpu:0", attempts=1)


class Pool:
    """The front of a pool, turned by the test."""

    def __init__(self, folder: Path, context: "zmq.Context[zmq.Socket[bytes]]") -> None:
        self.shared_memory = SharedMemory(256 * MIB, 64 * MIB)
        self.alarm = Alarms().alarm(lambda: None)
        self.front = Front(context, wire.Opened("0", 16 * MIB, 60.0), INSTANCE, 50, self.shared_memory, self.alarm)
        self.front.bind_local(folder / "front.sock")
        self.path = folder / "front.sock.memory"
        self.front.lend(self.path)
        self.now = 100.0
        self._context = context

    def turn(self, first_s: float = FIRST_S, least: int = 0) -> list[Event]:
        """Everything that comes, until nothing has for a while; what comes first is awaited longer.

        And so is what comes until there are `least` events.
        """
        found: list[Event] = []
        poller = zmq.Poller()
        poller.register(self.front.endpoints[0].socket, zmq.POLLIN)
        for fd in self.front.fds():
            poller.register(fd, zmq.POLLIN)
        wait_s = first_s
        while ready := poller.poll(int(wait_s * 1000)):
            for source, _ in ready:
                if isinstance(source, int):
                    self.front.on_readable()
                else:
                    found += self.front.receive(source, self.now)
            found += self.front.tend(self.now)
            wait_s = first_s if len(found) < least else min(first_s, QUIET_S)
        return found

    def lapse(self, seconds: float) -> list[Event]:
        found: list[Event] = []
        ends = self.now + seconds
        while self.now < ends:
            self.now += 1.0
            found += self.front.tend(self.now)
        return found

    def client(self) -> "Client":
        return Client(self, self._context)

    def connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.settimeout(5)
        connection.connect(str(self.path))
        return connection


class Client:
    """Says what the test tells it."""

    def __init__(self, pool: Pool, context: "zmq.Context[zmq.Socket[bytes]]") -> None:
        self.pool = pool
        self.dealer = context.socket(zmq.DEALER)
        self.dealer.linger = 0
        self.dealer.connect(address(pool.front.endpoints[0].socket))
        self.dealer.send_multipart(encode(wire.Open("a test"), NO_INSTANCE))
        pool.turn()
        (opened,) = self.heard()
        assert isinstance(opened, wire.Opened)
        self.ticket = opened.ticket
        self.loan = pool.connect()

    def show(self) -> "Client":
        self.loan.send(self.ticket)
        self.pool.turn()
        return self

    def request(self, size_bytes: int) -> int | None:
        """The number of a new segment."""
        self.loan.send(MemoryRequest(size_bytes, size_bytes).pack())
        self.pool.turn()
        with receive_grant(self.loan) as received:
            assert received is not None
            grant, fd = received
            if fd is None:
                return None
            attach(fd, grant.size_bytes).close()
            return grant.segment

    def submit(self, job: int, lent: tuple[Lent, ...], room: AnswerSpace | None = None, rows: int = 1) -> list[Event]:
        submit = Asked(job, "m", None, None, rows, None, 0, None, 0, False, lent, room)
        self.dealer.send_multipart(framed(submit, INSTANCE, [TABLE, b"", b"\0" * 8 * rows]))
        return self.pool.turn()

    def heard(self, first_s: float = FIRST_S, least: int = 1) -> list[Any]:
        """Results one by one. So many at least are awaited longer."""
        found: list[Any] = []
        wait_s = first_s
        while self.dealer.poll(int(wait_s * 1000)):
            frames = self.dealer.recv_multipart()
            message = decode(wire.CLIENT_MESSAGES, frames).message
            found += message.results if isinstance(message, wire.Results) else [message]
            wait_s = first_s if len(found) < least else QUIET_S
        return found

    def close(self) -> None:
        self.dealer.close()
        self.loan.close()


@pytest.fixture
def pool() -> Iterator[Pool]:
    with zmq.Context() as context, tempfile.TemporaryDirectory(prefix="pl-") as folder:
        pool = Pool(Path(folder), context)
        yield pool
        pool.front.close()
        assert pool.shared_memory.lent_bytes == 0


@pytest.fixture
def client(pool: Pool) -> Iterator[Client]:
    client = pool.client().show()
    yield client
    client.close()


def refusals(messages: list[Message]) -> list[str]:
    return [message.text for message in messages if isinstance(message, wire.Failure)]


def test_an_idle_client_keeps_what_it_was_lent(pool: Pool, client: Client) -> None:
    assert client.request(MIB) == 1
    assert pool.lapse(3 * SILENCE_S) == []
    (arrived,) = client.submit(1, (Lent(0, 1, 0, 64),))
    assert isinstance(arrived, JobArrived)
    client.loan.close()
    assert [type(event) for event in pool.turn()] == [ClientGone]
    assert pool.shared_memory.lent_bytes == 0


def test_a_client_that_is_silent_and_waits_is_gone_all_the_same(pool: Pool, client: Client) -> None:
    client.request(MIB)
    client.submit(1, (Lent(0, 1, 0, 64),))
    assert [type(event) for event in pool.lapse(2 * SILENCE_S)] == [ClientGone]
    assert pool.shared_memory.lent_bytes == 0


@pytest.mark.parametrize(
    ("lent", "room", "said"),
    [
        ((Lent(0, 2, 0, 64),), None, "segment 2 is not lent to this client"),
        ((Lent(0, 9, 0, 64),), None, "segment 9 is not lent to this client"),
        ((Lent(1, 1, 0, 64),), None, "0 bytes where 1 rows have 64"),
        ((Lent(0, 1, 2**63, 64),), None, "of a segment of"),
        ((Lent(0, 1, 0, 2**63),), None, "of a segment of"),
        ((Lent(0, 1, 0, 128),), None, "128 bytes where 1 rows have 64"),
        ((Lent(0, 1, 0, 64),), AnswerSpace(2, 0, 64), "segment 2 is not lent to this client"),
        ((Lent(0, 1, 0, 64),), AnswerSpace(1, 0, 2**62), "of a segment of"),
        ((Lent(0, 1, 0, 64),), AnswerSpace(1, 2**64 - 64, 64), "of a segment of"),
    ],
)
def test_a_lie_about_memory_is_the_liars_failure(
    pool: Pool, client: Client, lent: tuple[Lent, ...], room: AnswerSpace | None, said: str
) -> None:
    other = pool.client().show()
    assert (client.request(MIB), other.request(MIB)) == (1, 2)
    assert client.submit(7, lent, room) == []
    failure, released = client.heard(least=2)
    assert isinstance(failure, wire.Failure)
    assert (failure.job, failure.fault) == (7, Fault.INVALID_INPUT)
    assert said in failure.text
    assert released == wire.Released(7)
    assert other.heard(QUIET_S) == []
    (arrived,) = client.submit(8, (Lent(0, 1, 0, 64),), AnswerSpace(1, 0, 64))  # over its own input: its own harm
    assert isinstance(arrived, JobArrived)
    other.close()


def test_strings_in_a_segment_are_held_to_their_ends(client: Client) -> None:
    client.request(MIB)
    submit = Asked(1, "m", None, None, 2, None, 0, None, 0, False, (Lent(1, 1, 0, 8),), None)
    client.dealer.send_multipart(framed(submit, INSTANCE, [TABLE, bytes(128), b""]))
    assert client.pool.turn() == []
    assert "too few for the strings" in refusals(client.heard())[0]


def test_a_second_job_of_one_number_changes_nothing_of_the_first(pool: Pool, client: Client) -> None:
    client.request(MIB)
    (arrived,) = client.submit(1, (Lent(0, 1, 0, 64),))
    assert isinstance(arrived, JobArrived)
    assert client.submit(1, (Lent(0, 1, 64, 64),)) == []
    assert [message for message in client.heard() if not isinstance(message, wire.Failure)] == []
    pool.front.answer(AnswerJob(arrived.client, 1, JobFailed(Fault.MODEL_FAILED, "text")))
    assert [type(message) for message in client.heard(least=2)] == [wire.Failure, wire.Released]
    client.close()
    pool.turn()
    assert pool.shared_memory.lent_bytes == 0


def test_every_end_of_a_job_releases_it_once(pool: Pool, client: Client) -> None:
    client.request(MIB)

    def submitted(job: int) -> tuple[bytes, Inputs]:
        (arrived,) = client.submit(job, (Lent(0, 1, 0, 64),))
        assert isinstance(arrived, JobArrived)
        assert isinstance(arrived.payload, Inputs)
        return arrived.client, arrived.payload

    done = JobDone((), TIMELINE)
    name, _ = submitted(1)
    pool.front.answer(AnswerJob(name, 1, done))
    pool.front.answered()
    (result,) = client.heard()
    assert isinstance(result, wire.Result)
    assert result.released

    _, leased = submitted(2)
    assert leased.regions is not None
    leased.regions.hold()  # a piece that nobody waits for any more
    pool.front.answer(AnswerJob(name, 2, done))
    pool.front.answered()
    (result,) = client.heard()
    assert isinstance(result, wire.Result)
    assert not result.released
    leased.regions.let_go()
    assert client.heard() == [wire.Released(2)]

    _, leased = submitted(3)
    assert leased.regions is not None
    leased.regions.hold()
    client.dealer.send_multipart(encode(wire.Cancel(3), INSTANCE))
    assert pool.turn() == [JobCancelled(name, 3)]
    assert client.heard(QUIET_S) == []
    leased.regions.let_go()
    assert client.heard() == [wire.Released(3)]

    _, leased = submitted(4)
    assert leased.regions is not None
    leased.regions.hold()
    client.close()
    assert [type(event) for event in pool.turn()] == [ClientGone]
    assert pool.shared_memory.lent_bytes == SMALLEST_BYTES, "a worker is still in it"
    leased.regions.let_go()
    assert pool.shared_memory.lent_bytes == 0


def test_who_shows_no_ticket_or_a_wrong_one_gets_nothing(pool: Pool, client: Client) -> None:
    for shown in (b"x", bytes(16), client.ticket + b"x", client.ticket):  # the last is connected already
        with pool.connect() as stranger:
            stranger.send(shown)
            pool.turn()
            assert stranger.recv(1) == b""
    assert pool.front.refused["a connection for memory without its ticket"] == 4
    assert client.request(MIB) == 1


def test_a_client_that_was_gone_before_its_ticket_came_is_nobody_to_refuse(pool: Pool) -> None:
    """As each second `pool status` is: its CLOSE comes on another connection."""
    brief = pool.client()
    brief.dealer.send_multipart(encode(wire.Close(), INSTANCE))
    assert [type(event) for event in pool.turn(least=1)] == [ClientGone]  # its other connection comes first
    brief.show()
    assert brief.loan.recv(1) == b"", "it is lent nothing"
    assert not pool.front.refused
    brief.close()


def test_thousands_of_strangers_take_no_descriptors(pool: Pool, client: Client) -> None:
    before = len(os.listdir("/proc/self/fd"))
    strangers = []
    for _ in range(300):
        strangers.append(pool.connect())
        pool.turn(0)
    pool.turn(QUIET_S)
    assert len(os.listdir("/proc/self/fd")) <= before + 300 + MOST_STRANGERS
    assert client.request(MIB) == 1
    for stranger in strangers:
        stranger.close()
    pool.turn()
    assert len(os.listdir("/proc/self/fd")) <= before + 2


def test_one_that_wishes_and_does_not_listen_costs_no_memory(pool: Pool, client: Client) -> None:
    client.loan.setblocking(False)
    for _ in range(3000):
        try:
            client.loan.send(MemoryRequest(2**63, 2**63).pack())
        except BlockingIOError:
            pool.turn(0)
    for _ in range(50):
        try:
            client.loan.send(MemoryRequest(1, 1).pack())
        except BlockingIOError:
            pool.turn(0)
    pool.turn()
    assert pool.shared_memory.lent_bytes == 0, "no grant of one reached it"
    client.loan.settimeout(5)
    while select.select([client.loan], [], [], 0)[0]:
        client.loan.recv(64)
    assert client.request(MIB) is not None


@pytest.mark.parametrize("seed", range(3))
def test_any_bytes_on_the_loan_harm_nobody_else(pool: Pool, client: Client, seed: int) -> None:
    chosen = random.Random(seed)
    for _ in range(20):
        other = pool.client()
        if chosen.random() < 0.7:
            other.show()
        for _ in range(chosen.randrange(4)):
            try:
                other.loan.send(chosen.randbytes(chosen.choice([1, 15, 16, 16, 16, 17, 64, 100])))
            except OSError:
                break
            pool.turn(0)
        other.close()
    pool.turn(QUIET_S)
    deadline = time.monotonic() + FIRST_S
    while pool.shared_memory.lent_bytes and time.monotonic() < deadline:
        pool.turn(QUIET_S)
    assert pool.shared_memory.lent_bytes == 0
    assert client.request(MIB) is not None


@contextlib.contextmanager
def allowed(number: int) -> Iterator[None]:
    """So many descriptors, for this process."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (number, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_without_descriptors_the_listener_pauses_and_returns(pool: Pool) -> None:
    """Whoever knocks would have it readable without end, and the loop turn without a rest."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as knocks:
        lowest = os.dup(knocks.fileno())
        os.close(lowest)
        with allowed(lowest):
            knocks.connect(str(pool.path))
            poller = zmq.Poller()
            for fd in pool.front.fds():
                poller.register(fd, zmq.POLLIN)
            assert poller.poll(5000)
            pool.front.on_readable()
            assert not poller.poll(0)
            assert pool.alarm.is_asked
            pool.alarm.clear()
            assert list(pool.front.tend(pool.now)) == []
            assert pool.alarm.instant == pool.now + PAUSE_S
        assert list(pool.front.tend(pool.now + PAUSE_S)) == []
        assert poller.poll(5000)
        pool.front.on_readable()
        assert not poller.poll(0), "it was let in"
    assert poller.poll(5000), "its end was seen"
    pool.front.on_readable()


def test_where_descriptors_run_short_nothing_is_lent(pool: Pool) -> None:
    client = pool.client().show()
    with allowed(descriptors.in_use() + 5):
        assert client.request(MIB) is None
        with pool.connect() as stranger:
            pool.turn()
            assert stranger.recv(1) == b""
    assert pool.front.refused["a connection for memory, because file descriptors run out"] == 1
    assert client.request(MIB) is not None
    client.close()
