"""Routing ids: nobody can tell which comes next, nobody's own choice is served, and none is shown."""

import itertools
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from pool import Client
from pool.core.events import WorkerHello
from pool.serve.handouts import Handouts
from pool.wire import client_messages as wire
from pool.wire.frames import NO_INSTANCE, decode, encode
from pool.wire.worker_messages import Hello
from support.heard import HeardBack as Back
from support.pool_process import PoolProcess
from support.processes import eventually

SQUATTED = 60  # of each ROUTER's ids, from its first on: a pool's own connections take some of them first
FIRST_IDS = """
import tempfile
import zmq
{new}
with zmq.Context() as context, tempfile.TemporaryDirectory() as folder:
    for number in range(3):
        with new(context) as router, context.socket(zmq.DEALER) as dealer:
            router.bind(f"ipc://{{folder}}/{{number}}")
            dealer.connect(f"ipc://{{folder}}/{{number}}")
            dealer.send(b"")
            print(router.recv().hex())
"""
UNSEEDED = "def new(context): return context.socket(zmq.ROUTER)"
OURS = "from pool.serve.routes import new_router as new"


def first_ids(new: str) -> list[bytes]:
    """The first ids of three ROUTERs of a new process."""
    said = subprocess.run(
        [sys.executable, "-c", FIRST_IDS.format(new=new)], check=True, capture_output=True, text=True, timeout=60
    )
    return [bytes.fromhex(line) for line in said.stdout.split()]


def after(route: bytes, count: int) -> Iterator[bytes]:
    """This id and those that are given after it."""
    first = int.from_bytes(route[1:], "big")
    for number in range(first, first + count):
        yield b"\0" + (number % (1 << 32)).to_bytes(4, "big")


def dealer_of(context: "zmq.Context[zmq.Socket[bytes]]", endpoint: str, route: bytes = b"") -> "zmq.Socket[bytes]":
    dealer = context.socket(zmq.DEALER)
    dealer.linger = 0
    dealer.rcvtimeo = 10_000
    if route:
        dealer.setsockopt(zmq.ROUTING_ID, route)
    dealer.connect(endpoint)
    return dealer


def heard_by(dealer: "zmq.Socket[bytes]") -> object:
    frames = dealer.recv_multipart()
    return decode(wire.CLIENT_MESSAGES, frames).message


def test_the_ids_of_one_start_or_socket_tell_nothing_of_anothers() -> None:
    ids = first_ids(OURS) + first_ids(OURS)
    assert all(len(route) == 5 and route[0] == 0 for route in ids)
    numbers = sorted(int.from_bytes(route[1:], "big") for route in ids)
    apart = [later - earlier for earlier, later in itertools.pairwise(numbers)]
    # By chance, two of the six are so near each other in one of a hundred thousand runs.
    assert min(apart) > 1000, ids


@pytest.mark.parametrize("which", ["", ".workers"])
def test_who_takes_the_ids_that_libzmq_gives_in_every_start_does_not_end_the_pool(
    pool: PoolProcess, client: Client, which: str
) -> None:
    predictable = first_ids(UNSEEDED)
    with zmq.Context() as context:

        def said() -> int:
            status = client.status()
            return sum((*status.refused.values(), *status.dropped.values()))

        before = said()
        endpoint = f"{pool.endpoint}{which}"
        routes = [route for first in predictable for route in after(first, SQUATTED)]
        squatters = [dealer_of(context, endpoint, route) for route in routes]
        for squatter in squatters:
            squatter.send(b"here")
        eventually(lambda: said() >= before + len(squatters))
        comers = [dealer_of(context, endpoint) for _ in range(SQUATTED)]  # these are given the next ids
        for comer in comers:
            comer.send(b"here")
        eventually(lambda: said() >= before + len(squatters) + len(comers))
        for socket in (*squatters, *comers):
            socket.close()
    assert client.run("echo", 1.0)["x"] == 1.0
    assert pool.running.poll() is None


@pytest.mark.parametrize("route", [b"x", b"abcde", b"\0abc", b"\0abcde", b"\1" * 255])
def test_an_id_of_a_peers_choice_is_refused(pool: PoolProcess, client: Client, route: bytes) -> None:
    with zmq.Context() as context, dealer_of(context, pool.endpoint, route) as dealer:
        dealer.send_multipart(encode(wire.Open("by hand"), NO_INSTANCE))
        refusal = heard_by(dealer)
        assert isinstance(refusal, wire.Refusal)
        assert "a routing id that its peer has chosen" in refusal.text
    assert client.run("echo", 1.0)["x"] == 1.0


def test_a_workers_id_of_its_own_choice_is_refused() -> None:
    """With the secret, too."""
    with zmq.Context() as context, tempfile.TemporaryDirectory() as folder:
        back = Back(context, Path(folder, "back.sock"), b"instance", Handouts(lambda *_: False, lambda *_: True))
        back.expect(0, 1, b"s" * 32)
        for route, heard in ((b"mine", []), (b"", [WorkerHello(0, 1)])):
            with dealer_of(context, back.endpoint, route) as dealer:
                dealer.send_multipart(encode(Hello(0, 1, None, b"s" * 32), NO_INSTANCE))
                assert back.socket.poll(5000)
                assert list(back.receive()) == heard
        assert back.dropped == {"a routing id that its peer has chosen": 1}
        back.close()


def test_clients_are_shown_by_small_numbers_that_stay(pool: PoolProcess) -> None:
    with pool.client() as one, pool.client() as other:
        for client in (one, other, one):
            client.run("echo", 1.0)
        newest = [job.client for job in one.explain().jobs[:3]]
        assert newest[0] == newest[2] != newest[1]
        assert 0 < max(newest) < 1000
