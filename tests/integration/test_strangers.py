"""Who says what nobody says: it costs a client its link, a worker its life, and nobody else anything."""

import contextlib
import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import zmq

from attacks.attacks import ATTACKS
from attacks.siege import Siege, siege
from pool.wire.bodies import HEAD, Kind, pack
from support import liar
from support.pools import RunningPool, StartPool, until
from support.raw import RawClient, job, memory, shared_job

ONE = '[pool]\ndevices = ["cpu"]\nlanes = 1\n[[model]]\nname = "double"\npath = "stub:double"\n'
MANY_DEATHS = "[queue]\nmax_attempts = 100\n[restart]\nintensity = 100\n"
X = np.ones((1, 1), np.float32)


@pytest.fixture
def raw(running: RunningPool) -> Iterator[RawClient]:
    with contextlib.closing(RawClient(running.endpoint)) as client:
        yield client


def test_each_attack_of_clients_costs_only_them(tmp_path: Path) -> None:
    """With `-m chaos` they come in a random mix, and for as long as one likes."""
    seed = time.time_ns() % 1_000_000
    print(f"seed {seed}")
    names = [*(ATTACKS.keys() - liar.LIES), *["junk", "descriptors", "requests"] * 20]  # of which each draws one case

    def each(made: Siege) -> None:
        for name in names:
            ATTACKS[name](made)
            made.look()

    with siege(tmp_path, seed) as made:
        figures = made.attack({"each": each}, 8)
    for before, *_, after in figures.values():
        assert after.descriptors <= before.descriptors + 10


def test_traces_that_nobody_waits_for_are_forgotten(running: RunningPool, raw: RawClient) -> None:
    data = pack(["placement", {"name": "double"}])
    for number in range(120):
        raw.send(HEAD.pack(Kind.ASK, 0, 0, 0, 0, len(data), number, 0.0, 0.0) + data)
    assert raw.ends(120) == dict.fromkeys(range(120), "DeadlineExceeded")


def test_connections_without_a_link_or_without_end_are_cut(start_pool: StartPool, tmp_path: Path) -> None:
    """libzmq ends a process that has no descriptor left."""
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))\n"
    (tmp_path / "sitecustomize.py").write_text(limit)
    path = ":".join([str(tmp_path), *(each for each in sys.path if each)])
    pool = start_pool(ONE, PYTHONPATH=path)
    with zmq.Context() as context, context.socket(zmq.DEALER) as stranger:
        stranger.setsockopt(zmq.RECONNECT_IVL, -1)
        stranger.setsockopt(zmq.LINGER, 0)
        with stranger.get_monitor_socket(zmq.EVENT_DISCONNECTED) as monitor:
            stranger.connect(pool.endpoint)
            assert monitor.poll(60_000), "it is cut"
            stranger.disable_monitor()
    with contextlib.closing(RawClient(pool.endpoint)) as client, contextlib.ExitStack() as stack:
        client.socket.zmq.setsockopt(zmq.RCVTIMEO, 60_000)
        assert client.ask("status")["clients"] == 1
        for _ in range(4500):
            silent = stack.enter_context(socket.socket(socket.AF_UNIX))
            silent.connect(pool.endpoint.removeprefix("ipc://"))
        client.send(job(1, "double", x=X))
        assert client.ends(1) == {1: {"y": X * 2}}


def test_a_client_that_goes_with_jobs_on_the_way_leaves_nothing(running: RunningPool, raw: RawClient) -> None:
    for _ in range(20):
        client = RawClient(running.endpoint)
        lent = memory()
        client.link.send({"arena": 5, "bytes": 1 << 20}, lent)
        os.close(lent)
        client.send(b"".join(job(number, "double", x=X) for number in range(100)))
        client.send(shared_job(100, "double", (5, 0, 64, 64, 64), x=X))
        client.link.socket.close()  # while its letters are on the way
        with contextlib.suppress(zmq.Again):
            client.socket.zmq.send(job(101, "double", x=X), zmq.NOBLOCK)
        client.socket.zmq.close()
        client.context.term()
    status = until(lambda: (s := raw.ask("status"))["queue"]["jobs"] == 0 and s["clients"] == 1 and s, "no jobs")
    assert status["queue"]["bytes"] == 0
    maps = [Path(f"/proc/{slot['pid']}/maps") for slot in status["slots"]]
    until(lambda: not any("memfd:test" in each.read_text() for each in maps), "the workers to let go of its memory")


def test_a_lie_costs_a_worker_its_life(start_pool: StartPool, tmp_path: Path) -> None:
    """Each worker tells another lie. One job outlives them all."""
    environ = liar.environ(tmp_path, "")
    lies = [tmp_path / "lies" / f"{number:02}-{lie}" for number, lie in enumerate(liar.LIES)]
    for lie in lies:
        lie.touch()
    pool = start_pool(ONE + MANY_DEATHS, wait=False, **environ)
    pool.wait_for("starting")
    with contextlib.closing(RawClient(pool.endpoint)) as client:
        client.socket.zmq.setsockopt(zmq.RCVTIMEO, 60_000)
        client.send(job(1, "double", seconds=50, x=X))
        assert client.ends(1) == {1: {"y": X * 2}}, pool.log.read_text()
    assert not any(lie.exists() for lie in lies), "the premise: all were told"
    until(lambda: pool.log.read_text().count("it said what no worker says") >= len(lies), "the reasons in the log")
