"""Clients that lie about their calls, and peers of the former version: each is told so, and the pool goes on."""

from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import zmq

from pool import Client, errors
from pool.client.payload import encode_call
from pool.wire import client_messages as wire
from pool.wire.calls import CALLS_BYTES, MOST_CALLS
from pool.wire.frames import MAGIC, NO_INSTANCE, VERSION, decode, encode
from support.asked import Asked
from support.pool_process import PoolProcess, pool_process, stub_config

ONE = np.array([1], np.float32)
ROWS, PAYLOAD = encode_call("echo", ONE)
TABLE: bytes = PAYLOAD[0]  # type: ignore[assignment]  # the first of it

# What the last release with version 7 said, byte for byte.
OPEN_7 = [b"TFWP\x07\x01\x00\x00\x00\x00\x00\x00\x00\x00", b"\x91\xa8pid 4711"]
SUBMIT_7 = [
    b"TFWP\x07\x03instance",
    b"\x9e\x01\xa4echo\xc0\xc0\x02\xcb@N\x00\x00\x00\x00\x00\x00\x00\xc0\x00\xc2\x90\xc0\x90\xc0",
    b"\x91\x91\x94\xa0\xa7float32\x91\xff\xc2",
    b"\x00\x00\x80?\x00\x00\x00@",
]
HELLO_7 = [b"TFWP\x07 \x00\x00\x00\x00\x00\x00\x00\x00", b"\x94\x00\x01\xc0\xc4 " + b"x" * 32]
OPENED_7 = [b"TFWP\x07\x02instance", b"\x94\xa30.1\xce\x00\x10\x00\x00\xcb@N\x00\x00\x00\x00\x00\x00\xc4\x00"]
REFUSAL_7 = [b"TFWP\x07\x00instance", b"\x91\xa2no"]

OTHER_VERSION = (
    "protocol version 7 from the other side, 14 here: install the same release on both sides,"
    " and restart a pool that was started before"
)


@pytest.fixture(scope="module")
def pool() -> Iterator[PoolProcess]:
    with pool_process(stub_config()) as running:
        yield running
        assert "Traceback" not in running.whole_log()


class Peer:
    """A client made by hand."""

    def __init__(self, dealer: "zmq.Socket[bytes]") -> None:
        self.dealer = dealer
        self._results: deque[wire.Result] = deque()  # what ends at the same time comes in one message
        self.say(wire.Open("by hand"), NO_INSTANCE)
        self.instance = dealer.recv_multipart()[0][6:14]

    def say(self, message: Any, instance: bytes | None = None, payload: Any = ()) -> None:
        self.dealer.send_multipart(encode(message, self.instance if instance is None else instance, payload))

    def submit(self, asked: Asked, call: int, *, registers: bool = True) -> None:
        self.say(asked.submit(TABLE, call, registers), payload=PAYLOAD[1:])

    def hear(self) -> Any:
        """The next message but RELEASED, or the next result of one of results."""
        while not self._results:
            message = decode(wire.CLIENT_MESSAGES, self.dealer.recv_multipart()).message
            if isinstance(message, wire.Results):
                self._results.extend(message.results)
            elif not isinstance(message, wire.Released):
                return message
        return self._results.popleft()


@pytest.fixture
def peer(pool: PoolProcess) -> Iterator[Peer]:
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.linger = 0
        dealer.rcvtimeo = 10_000
        dealer.connect(pool.endpoint)
        yield Peer(dealer)


def echo(job: int, **fields: Any) -> Asked:
    return Asked(job, "echo", rows=1, **fields)


def test_a_call_is_said_once_and_used_by_its_number(peer: Peer) -> None:
    peer.submit(echo(1), 5)
    assert isinstance(peer.hear(), wire.Result)
    for job in (2, 3):
        peer.submit(echo(job), 5, registers=False)
        assert peer.hear().job == job


def test_a_number_that_is_not_known_is_told_so_for_ever(peer: Peer, client: Client) -> None:
    for job in range(1, 3000):
        peer.submit(echo(job), 9, registers=False)
        assert peer.hear() == wire.Unregistered(job)
    assert client.run("echo", ONE)["x"] == ONE
    assert client.status().queue.jobs == 0, "nothing of it is kept"
    peer.submit(echo(1), 9)
    assert isinstance(peer.hear(), wire.Result)


def test_a_number_that_was_used_is_refused(peer: Peer) -> None:
    peer.submit(echo(1), 5)
    assert isinstance(peer.hear(), wire.Result)
    for job, call in ((2, 5), (3, 4), (4, 0)):
        peer.submit(echo(job, signature="other"), call)
        told = peer.hear()
        assert (told.job, told.text) == (
            job,
            f"the job cannot be read: call {call} after call 5: no number is used again",
        )
    peer.submit(echo(5), 5, registers=False)
    assert peer.hear().job == 5, "it is what it was"


def test_one_call_too_many_is_refused_and_forgetting_makes_room(peer: Peer, client: Client) -> None:
    for number in range(1, MOST_CALLS + 1):
        peer.submit(echo(number, device=f"none {number}"), number)
        assert "is not a device" in peer.hear().text
    for job in (2001, 2002):
        peer.submit(echo(job), 2000 + job)
        assert f"{MOST_CALLS + 1} calls; the pool keeps at most {MOST_CALLS} of one client" in peer.hear().text
    assert client.run("echo", ONE)["x"] == ONE, "that is nobody else's affair"
    peer.say(wire.Forget(1))
    peer.submit(echo(2003), 5000)
    assert isinstance(peer.hear(), wire.Result)
    peer.submit(echo(2004), 1, registers=False)
    assert peer.hear() == wire.Unregistered(2004)


def test_what_is_forgotten_while_it_runs_is_answered(pool: PoolProcess, peer: Peer) -> None:
    rows, payload = encode_call("faults", 1.0)
    table, *buffers = payload
    slow = Asked(1, "faults", "sleep", rows=rows)
    peer.say(slow.submit(bytes(table), 1), payload=buffers)  # type: ignore[arg-type]  # nothing of it is lent
    peer.submit(Asked(2, "echo", rows=1, device="slot:0"), 2)
    for call in (1, 2, 2, 77, (1 << 64) - 1):
        peer.say(wire.Forget(call))
    peer.submit(echo(3), 2, registers=False)
    told = [peer.hear() for _ in range(3)]
    assert wire.Unregistered(3) in told
    assert {each.job for each in told if isinstance(each, wire.Result)} == {1, 2}
    assert pool.running.poll() is None


def test_huge_names_are_refused_by_their_count_and_their_bytes(peer: Peer, client: Client) -> None:
    outputs = tuple(f"{number:0900}" for number in range(60))
    refused = 0
    for number in range(1, 400):
        peer.submit(echo(number, outputs=(f"{number}", *outputs)), number)
        told = peer.hear()
        refused += f"at most {CALLS_BYTES} of one client" in told.text
    assert 250 < refused < 380, "four megabytes of them fit"
    peer.submit(echo(1000, outputs=tuple("y" * 999 + str(n) for n in range(70))), 1000)
    assert "a header of" in peer.hear().text
    assert client.run("echo", ONE)["x"] == ONE


def test_rows_are_counted_by_the_call(peer: Peer) -> None:
    peer.submit(echo(1), 1)
    assert isinstance(peer.hear(), wire.Result)
    peer.submit(Asked(2, "echo"), 1, registers=False)
    assert "no rows in a call that counts them" in peer.hear().text
    peer.submit(Asked(3, "echo"), 2)
    told = peer.hear()
    assert told.job == 3
    peer.submit(Asked(4, "echo", rows=1), 2, registers=False)
    assert "1 rows in a call that counts none" in peer.hear().text


def test_an_honest_client_of_more_calls_than_may_be_is_served(client: Client) -> None:
    before = client.status().refused
    for number in range(MOST_CALLS + 50):
        assert client.run("echo", np.ones((1, number + 1), np.float32))["x"].shape == (1, number + 1)
    assert client.run("echo", np.ones((1, 1), np.float32))["x"].shape == (1, 1), "it was forgotten, and is said again"
    assert client.status().refused == before


@pytest.mark.parametrize("frames", [OPEN_7, SUBMIT_7, OPEN_7[:1], [*SUBMIT_7, b"more"]])
def test_a_client_of_version_7_hears_a_refusal_that_it_can_read(pool: PoolProcess, frames: list[bytes]) -> None:
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.linger = 0
        dealer.rcvtimeo = 10_000
        dealer.connect(pool.endpoint)
        dealer.send_multipart(frames)
        preamble, header = dealer.recv_multipart()
    assert preamble[:6] == b"TFWP\x0e\x00", "by its fifth byte a former client knows, and says which side to install"
    assert len(preamble) == 14
    assert header == REFUSED


REFUSED = b"\x91\xd9" + bytes((len(OTHER_VERSION),)) + OTHER_VERSION.encode()


def test_a_worker_of_version_7_hears_so_and_is_nobody(pool: PoolProcess, client: Client) -> None:
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.linger = 0
        dealer.rcvtimeo = 10_000
        dealer.connect(f"{pool.endpoint}.workers")
        dealer.send_multipart(HELLO_7)
        preamble, header = dealer.recv_multipart()
    assert (preamble[:6], header) == (b"TFWP\x0e\x00", REFUSED)
    assert [reason for reason in client.status().dropped if reason.startswith(OTHER_VERSION[:60])]
    assert client.run("echo", ONE)["x"] == ONE


@pytest.mark.parametrize("frames", [OPENED_7, REFUSAL_7])
def test_a_pool_of_version_7_is_told_to_its_user(frames: list[bytes]) -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.linger = 0
        router.rcvtimeo = 10_000
        port = router.bind_to_random_port("tcp://127.0.0.1")
        with Client(f"tcp://127.0.0.1:{port}") as client:
            future = client.submit("echo", 1.0)
            route, preamble, _ = router.recv_multipart()
            assert preamble == MAGIC + bytes((VERSION, wire.Open.kind)) + NO_INSTANCE
            router.send_multipart([route, *frames])
            with pytest.raises(errors.Incompatible, match=OTHER_VERSION):
                future.result(10)
