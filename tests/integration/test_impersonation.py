"""Who comes as another client: the pool's front on its own, whose peers say whatever they like."""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import zmq

from pool.clock.alarms import Alarms
from pool.config import ClientSection
from pool.core.events import ClientGone
from pool.serve import standing
from pool.serve.front import SILENCE_S
from pool.serve.shared_memory import SharedMemory
from pool.serve.standing import Standings
from pool.wire import client_messages as wire
from pool.wire.calls import ROWS, Table, TensorHeader
from pool.wire.codec import pack
from pool.wire.faults import Fault
from pool.wire.frames import NO_INSTANCE, decode, encode
from pool.wire.message import Message
from simulation.driver import JobArrived
from support.asked import Asked, framed
from support.heard import HeardFront as Front
from support.heard import address

INSTANCE = b"instance"
OPENED = wire.Opened("0", 1 << 20, 60.0)
TABLE = pack(Table((TensorHeader("x", "float32", (ROWS, 2), False),)))
ALICE = {"name": "alice", "models": ["m"], "may": ["logs"]}


@pytest.fixture
def front() -> Iterator[Front]:
    with tempfile.TemporaryDirectory(prefix="pi-") as folder, zmq.Context() as context:
        turn = Alarms().alarm(lambda: None)
        front = Front(context, OPENED, INSTANCE, 50, SharedMemory(1 << 20, 1 << 20), turn, standings(ALICE))
        front.bind_local(Path(folder, "front.sock"))
        yield front
        front.close()


def standings(*clients: Mapping[str, object]) -> Standings:
    return Standings([ClientSection.model_validate(client) for client in clients])


class Peer:
    """At the Unix socket, so it has all rights of its own."""

    def __init__(self, front: Front) -> None:
        self.front = front
        self.dealer = front._context.socket(zmq.DEALER)
        self.dealer.linger, self.dealer.rcvtimeo = 0, 5000
        self.dealer.connect(address(front.endpoints[0].socket))

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *_: object) -> None:
        self.dealer.close()

    def tell(self, message: Message, instance: bytes = INSTANCE, now: float = 1.0) -> list[object]:
        """What the core hears of it."""
        return self.send(encode(message, instance), now)

    def submit(self, job: int, model: str = "m", now: float = 1.0) -> list[object]:
        return self.send(
            framed(Asked(job, model, None, None, 1, None, 0, None, 0, False), INSTANCE, [TABLE, bytes(8)]), now
        )

    def send(self, frames: list[bytes], now: float) -> list[object]:
        self.dealer.send_multipart(frames)
        assert self.front.endpoints[0].socket.poll(5000)
        return list(self.front.receive(self.front.endpoints[0].socket, now))

    def open(self, impersonates: str = "") -> Message:
        assert self.tell(wire.Open("a test", impersonates), NO_INSTANCE) == []
        return self.hear()

    def hear(self) -> Message:
        return decode(wire.CLIENT_MESSAGES, self.dealer.recv_multipart()).message


def account_of(heard: list[object]) -> str:
    [job] = heard
    assert isinstance(job, JobArrived)
    return job.client[8:].decode()


def test_its_jobs_are_on_the_account_of_whom_it_came_as(front: Front) -> None:
    with Peer(front) as own, Peer(front) as alice, Peer(front) as unwritten:
        for peer, name, account in (
            (own, "", f"uid:{os.getuid()}"),
            (alice, "alice", "alice"),
            (unwritten, "carol", "token:carol"),
        ):
            assert isinstance(peer.open(name), wire.Opened)
            assert account_of(peer.submit(1)) == account
        assert front.connections() == {f"uid:{os.getuid()}": 1, "alice": 1, "token:carol": 1}


def test_it_has_the_rights_of_whom_it_came_as_and_no_others(front: Front) -> None:
    with Peer(front) as alice:
        alice.open("alice")
        assert alice.submit(1, "other") == []
        failure = alice.hear()
        assert isinstance(failure, wire.Failure)
        assert failure.fault is Fault.NOT_ALLOWED
        assert alice.tell(wire.Ask(1, "stop", "")) == []
        question = front.next_question()
        assert question is not None
        assert question.standing == standing.Standing("alice", frozenset({"m"}), frozenset({"logs"}))


def test_who_has_no_right_to_it_is_told_which_it_is_and_nothing_is_kept(front: Front) -> None:
    front._standings._owners.clear()  # nobody is the pool's own user
    with Peer(front) as stranger:
        denied = stranger.open("alice")
        assert isinstance(denied, wire.Denied)
        assert 'the right "impersonate" in its `may`' in denied.text
        assert stranger.submit(1) == []
        assert isinstance(stranger.hear(), wire.Farewell)
        assert front._clients.at == {}
        assert isinstance(stranger.open(), wire.Opened), "it may come as itself"
        assert account_of(stranger.submit(1)) == f"uid:{os.getuid()}"
    assert sum(front.refused.values()) == 1


@pytest.mark.parametrize("name", ["a b", "a\n", "x" * 65, "uid:0", "key:alice", "\x1b[31m", "é"])
def test_what_is_no_name_is_refused(front: Front, name: str) -> None:
    with Peer(front) as peer:
        assert isinstance(peer.open(name), wire.Refusal)
        assert front._clients.at == {}


@pytest.mark.parametrize(("first", "then"), [("alice", ""), ("alice", "bob"), ("", "alice")])
def test_a_connection_stays_the_client_that_it_came_as(front: Front, first: str, then: str) -> None:
    with Peer(front) as peer:
        peer.open(first)
        account = account_of(peer.submit(1))
        refusal = peer.open(then)
        assert isinstance(refusal, wire.Refusal)
        assert "stays the client" in refusal.text
        assert account_of(peer.submit(2)) == account


def test_a_connection_that_the_pool_has_forgotten_is_nobody_until_it_says_who_it_is(front: Front) -> None:
    """It spoke as alice; without a word it would be its own user again, with more rights."""
    with Peer(front) as peer:
        peer.open("alice")
        assert isinstance(peer.tell(wire.Close())[0], ClientGone)
        ways: list[Callable[[], list[object]]] = [
            lambda: peer.submit(1),
            lambda: peer.tell(wire.Ask(1, "stop", "")),
            lambda: peer.tell(wire.Ping()),
        ]
        for speak in ways:
            assert speak() == []
            farewell = peer.hear()
            assert isinstance(farewell, wire.Farewell)
            assert not farewell.unread
        assert front.next_question() is None
        assert peer.tell(wire.Close()) == []
        assert front._clients.at == {}
        peer.open("alice")
        assert account_of(peer.submit(2)) == "alice"


def test_a_client_that_was_silent_is_the_same_when_it_speaks_again(front: Front) -> None:
    with Peer(front) as peer:
        peer.open("alice")
        assert peer.tell(wire.Ping()) == []
        peer.hear()
        told = [event for second in range(int(SILENCE_S) + 5) for event in front.tend(1.0 + second)]
        assert [type(event) for event in told] == [ClientGone]
        assert account_of(peer.submit(1, now=100.0)) == "alice"


@pytest.mark.parametrize("clients", [(), ({"name": "alice", "models": ["n"]},)])
def test_a_reload_ends_it_for_who_does_not_listen_too(front: Front, clients: tuple[dict[str, object], ...]) -> None:
    """A peer that ignores the farewell does not keep the rights that it had."""
    with Peer(front) as peer:
        peer.open("alice")
        peer.submit(1)
        front.adopt(OPENED, 50, standings(*clients))
        assert [type(event) for event in front.tend(1.0)] == [ClientGone]
        farewell = peer.hear()
        assert isinstance(farewell, wire.Farewell)
        assert "[[client]] has changed" in farewell.text
        assert peer.submit(2) == []
        assert isinstance(peer.hear(), wire.Farewell)
        peer.open("alice")
        assert [account_of(peer.submit(3, "n"))] == [("alice" if clients else "token:alice")]


def test_a_reload_that_changes_nothing_of_it_leaves_it_alone(front: Front) -> None:
    with Peer(front) as peer:
        peer.open("alice")
        front.adopt(OPENED, 50, standings({**ALICE, "weight": 3.0}, {"name": "bob"}))
        assert list(front.tend(1.0)) == []
        assert account_of(peer.submit(1)) == "alice"


def test_a_gateway_that_loses_its_right_loses_its_clients() -> None:
    gateway = {"name": "gateway", "keys": ["door"], "may": ["impersonate", "logs"], "models": ["m", "n"]}
    before = standings(gateway, {**ALICE, "may": ["logs", "stop"], "models": ["m", "o"]})
    found = before.impersonated(before.of_key("door"), "alice")
    assert found == standing.Standing("alice", frozenset({"m"}), frozenset({"logs"})), "what both may, and no more"
    after = standings({**gateway, "may": []}, ALICE)
    assert after.impersonated(after.of_key("door"), "alice") is None
    assert before.impersonated(before.of_key("alice"), "gateway") is None
    assert before.impersonated(before.of_key("door"), "door") == standing.Standing(
        "token:door", frozenset({"m", "n"}), frozenset()
    ), "a key's name is no client's name"
