"""Clients that say what no client says: it costs them their link, and nobody else anything."""

import contextlib
import fcntl
import os
import random
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import zmq

from pool.wire.bodies import HEAD, Kind, pack, plain
from pool.wire.link import SEALS
from support.pools import RunningPool, StartPool, until
from support.raw import RawClient, RawSocket, flooded, job, lingering, memory, shared_job

X = np.ones((1, 1), np.float32)


@pytest.fixture
def raw(running: RunningPool) -> Iterator[RawClient]:
    with contextlib.closing(RawClient(running.endpoint)) as client:
        yield client


def serves(pool: RunningPool) -> bool:
    with contextlib.closing(RawClient(pool.endpoint)) as client:
        client.send(job(1, "double", x=X * 21))
        return bool(client.ends(1)[1]["y"].tolist() == [[42.0]])


def is_cut_off(client: RawClient) -> bool:
    return until(lambda: client.link.receive() is None, "the end of the link", 10)


HEADS = {
    "a number that is in use": job(7, "double", x=X) * 2,
    "half a head": b"\x02" * 20,
    "a body that is longer than its frame": HEAD.pack(Kind.JOB, 0, 0, 0, 0, 1000, 1, 1.0, 0.0),
    "a spec beyond bounds": HEAD.pack(Kind.JOB, 0, 0, 0, 1 << 30, 0, 1, 1.0, 0.0),
    "NaN seconds": HEAD.pack(Kind.JOB, 0, 0, 0, 0, 0, 1, float("nan"), 0.0),
    "a worker's word": HEAD.pack(Kind.DONE, 0, 0, 0, 0, 0, 1, 0.0, 0.0),
    "an unknown kind": HEAD.pack(99, 0, 0, 0, 0, 0, 1, 0.0, 0.0),
    "a letter without end": HEAD.pack(Kind.CANCEL, 0, 0, 0, 0, 0, 1, 1.0, 0.0) * 2000,
    "two questions": HEAD.pack(Kind.ASK, 0, 0, 0, 0, 9, 1, 1.0, 0.0) + b"\x92\xa6status\x80" + job(7, "double", x=X),
    "a question that is none": HEAD.pack(Kind.ASK, 0, 0, 0, 0, 1, 1, 1.0, 0.0) + b"\xc1",
}


@pytest.mark.parametrize("frames", [*([head] for head in HEADS.values()), [b"", b"x"]], ids=[*HEADS, "several frames"])
def test_bytes_that_no_client_sends_cost_the_link(running: RunningPool, raw: RawClient, frames: list[bytes]) -> None:
    raw.send(*frames)
    assert is_cut_off(raw)
    assert serves(running)


def test_traces_that_nobody_waits_for_are_forgotten(running: RunningPool, raw: RawClient) -> None:
    data = pack(["placement", {"name": "double"}])
    for number in range(120):
        raw.send(HEAD.pack(Kind.ASK, 0, 0, 0, 0, len(data), number, 0.0, 0.0) + data)
    assert raw.ends(120) == dict.fromkeys(range(120), "DeadlineExceeded")


def test_a_spec_that_cannot_be_is_the_job_s_error(running: RunningPool, raw: RawClient) -> None:
    spec = b"\x91\xc0"
    raw.send(HEAD.pack(Kind.JOB, 0, 0, 0, len(spec), 0, 1, 1.0, 0.0) + spec)
    right = job(2, "double", x=X)
    raw.send(right[:8] + (len(X.tobytes())).to_bytes(4, "little") + right[12:][: len(right) - 12 - 60])
    assert raw.ends(2) == {1: "InvalidInput", 2: "InvalidInput"}
    assert serves(running)


def test_a_region_that_is_not_the_client_s_is_refused(running: RunningPool, raw: RawClient) -> None:
    lent, other = memory(), RawClient(running.endpoint)
    raw.link.send({"arena": 11, "bytes": 1 << 20}, lent)
    cases = {
        1: (12, 0, 64, 0, 0),  # never lent
        2: (11, 1 << 20, 64, 0, 0),  # past its end
        3: (11, 32, 64, 0, 0),  # not aligned
        4: (11, 0, 64, 0, 64),  # the room over the input
        5: (11, 0, 64, 1 << 20, 64),  # room past its end
        6: (11, 0, 128, 0, 0),  # another length than its tensors
    }
    for number, part in cases.items():
        raw.send(shared_job(number, "double", part, x=X))
    other.send(shared_job(1, "double", (11, 0, 64, 64, 0), x=X))  # another client's
    assert raw.ends(len(cases)) == dict.fromkeys(cases, "InvalidInput")
    assert other.ends(1) == {1: "InvalidInput"}
    raw.send(shared_job(9, "double", (11, 0, 64, 64, 64), x=X))
    assert raw.ends(1)[9]["y"].tolist() == [[0.0]]
    other.close()
    os.close(lent)


@pytest.mark.parametrize("case", ["unsealed", "no memory", "twice", "without", "junk"])
def test_what_cannot_be_lent_costs_the_link(running: RunningPool, raw: RawClient, case: str) -> None:
    descriptors = {"unsealed": memory(seals=0), "twice": memory(), "no memory": os.open("/dev/null", os.O_RDONLY)}
    if case == "junk":
        raw.link.socket.send(b"\xc1 junk")
    elif case == "without":
        raw.link.send({"arena": 1, "bytes": 1})
    else:
        for _ in range(1 + (case == "twice")):
            raw.link.send({"arena": 1, "bytes": 1 << 20}, descriptors[case])
    assert is_cut_off(raw)
    assert serves(running)
    for descriptor in descriptors.values():
        os.close(descriptor)


def test_memory_that_no_worker_can_map_is_the_error_of_its_jobs(running: RunningPool, raw: RawClient) -> None:
    workers, writable = running.workers(), memory()
    cannot = {0: memory(0), 1: memory(seals=SEALS | fcntl.F_SEAL_WRITE), 2: memory(1 << 39)}
    cannot[3] = os.open(f"/proc/self/fd/{writable}", os.O_RDONLY)
    for number, lent in cannot.items():
        raw.link.send({"arena": number, "bytes": 0}, lent)
        length = 64 * min(number, 1)
        raw.send(shared_job(number, "double", (number, 0, length, length, 0), x=np.ones((length // 64, 1), np.float32)))
        os.close(lent)
    assert raw.ends(4) == {0: "InvalidInput", 1: "InvalidInput", 2: {"y": 0}, 3: "InvalidInput"}
    raw.link.send({"arena": 4, "bytes": 0}, huge := memory(1 << 40))
    assert is_cut_off(raw)
    assert serves(running)
    assert running.workers() == workers
    os.close(huge)
    os.close(writable)


def test_a_flood_on_a_link_stalls_nobody(running: RunningPool, raw: RawClient) -> None:
    with contextlib.closing(RawClient(running.endpoint)) as other, flooded(raw.link.socket, pack({"drop": 1})):
        ends, number = time.monotonic() + 1, 0
        while time.monotonic() < ends:
            number += 1
            other.send(job(number, "double", x=X))
            assert other.ends(1) == {number: {"y": 2}}


@pytest.mark.parametrize("what", [{"arena": 1}, {"junk": 1}, "junk", "unread"])
def test_a_descriptor_that_closes_slowly_stalls_nobody(running: RunningPool, raw: RawClient, what: object) -> None:
    if what == "unread":
        raw.link.socket.send(b"\xc1")
    lent, reader = lingering()
    with contextlib.suppress(BrokenPipeError):  # it is cut off already
        socket.send_fds(raw.link.socket, [pack(what)], [lent] * (200 if what == "junk" else 1))
    os.close(lent)  # the pool's is the last one
    with reader:
        assert is_cut_off(raw)
        assert serves(running)


def test_who_has_not_joined_hears_that_it_is_gone(running: RunningPool, raw: RawClient) -> None:
    with zmq.Context() as context:
        for first in (b"", b"junk", plain(Kind.JOIN, data=b"0" * 16), HEAD.pack(Kind.JOB, 0, 0, 0, 0, 0, 1, 1.0, 0.0)):
            stranger = RawSocket(running.endpoint, b"0" * 16, context)
            stranger.zmq.send(first)
            assert [body.kind for body in stranger.receive()] == [Kind.GONE]
            stranger.zmq.close()
    assert serves(running)


def test_connections_without_a_link_or_without_end_are_cut(start_pool: StartPool, tmp_path: Path) -> None:
    """libzmq ends a process that has no descriptor left."""
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))\n"
    (tmp_path / "sitecustomize.py").write_text(limit)
    path = ":".join([str(tmp_path), *(each for each in sys.path if each)])
    pool = start_pool('[pool]\ndevices = ["cpu"]\n[[model]]\nname = "double"\npath = "stub:double"\n', PYTHONPATH=path)
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


def test_links_that_come_and_go_at_once(running: RunningPool) -> None:
    path = running.endpoint.removeprefix("ipc://") + ".link"
    before = len(os.listdir(f"/proc/{running.pid}/fd"))
    for _ in range(300):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as link:
            link.connect(path)
    assert serves(running)
    until(lambda: len(os.listdir(f"/proc/{running.pid}/fd")) <= before + 3, "their descriptors' end")


def test_a_client_that_does_not_read_is_cut_off_at_a_bound(start_pool: StartPool) -> None:
    pool = start_pool('[pool]\ndevices = ["cpu"]\n[[model]]\nname = "echo"\npath = "stub:echo"\n')
    client = RawClient(pool.endpoint)
    block = np.zeros((1, 1 << 18), np.float32)  # 1 MiB
    number = 0

    def is_cut() -> bool:
        nonlocal number
        number += 1
        with contextlib.suppress(zmq.Again):
            client.socket.zmq.send(job(number, "echo", x=block), zmq.NOBLOCK)
        try:
            client.link.socket.setblocking(False)
            return client.link.receive() is None
        except BlockingIOError:
            return False

    try:
        until(is_cut, "the end of the link of who does not read")
    finally:
        client.close()
    pool.wait_for("it does not read")
    other = RawClient(pool.endpoint)
    other.send(job(1, "echo", x=X))
    assert other.ends(1)[1]["y"].tolist() == [[1.0]]
    other.close()


@pytest.mark.timeout(400)
@pytest.mark.parametrize("seconds", [3, pytest.param(180, marks=pytest.mark.fuzz)])
def test_mutated_traffic_ends_and_stalls_nothing(running: RunningPool, seconds: int) -> None:
    """`FUZZ_SEED` repeats a run."""
    seed = os.environ.get("FUZZ_SEED") or hex(random.getrandbits(32))
    print(f"FUZZ_SEED={seed}")
    chance = random.Random(seed)
    workers = running.workers()
    ends = time.monotonic() + seconds
    rounds = 0
    while time.monotonic() < ends:
        rounds += 1
        client = RawClient(running.endpoint)
        lent = memory()
        for number in range(chance.randrange(1, 30)):
            match chance.randrange(8):
                case 0:
                    with contextlib.suppress(OSError):  # it may be cut off already
                        client.link.send({"arena": chance.randrange(3), "bytes": 1}, lent)
                case 1:
                    with contextlib.suppress(OSError):
                        said = chance.choice(["arena", "drop", "x"])
                        client.link.send({said: chance.choice([1, -1, None, "a", 2**62])})
                case 2:
                    client.socket.zmq.close()
                    client.socket = RawSocket(running.endpoint, client.welcome["token"], client.context)
                case _:
                    frame = bytearray(mutant(client, number, chance))
                    for _ in range(chance.choice([0, 0, 1, 3])):
                        frame[chance.randrange(len(frame))] = chance.randrange(256)
                    with contextlib.suppress(zmq.ZMQError):
                        client.socket.zmq.send(bytes(frame), zmq.NOBLOCK)
            if chance.random() < 0.1:
                break
        os.close(lent)
        client.close()
        if rounds % 20 == 0:
            assert serves(running)
    assert rounds > 20, "the premise: it was tried often"
    assert serves(running)
    assert running.workers() == workers, "no worker had to die for it"


def mutant(client: RawClient, number: int, chance: random.Random) -> bytes:
    model = chance.choice(["double", "plain", "text", "count", "none"])
    x = np.array([[b"a", b"bc"]], object) if model == "text" else np.ones((chance.randrange(4), 1), np.float32)
    match chance.randrange(6):
        case 0:
            return job(number, model, seconds=chance.choice([0.0, 1e-3, 10.0]), x=x)
        case 1:
            return b"".join(job(number + index, model, x=x) for index in range(3))
        case 2:
            part = (chance.randrange(3), *(chance.choice([0, 64, 1 << 20, 1 << 63]) for _ in range(4)))
            return shared_job(number, model, part, x=X)
        case 3:
            return HEAD.pack(Kind.CANCEL, 0, 0, 0, 0, 0, number, 0.0, 0.0)
        case 4:
            return HEAD.pack(Kind.CLOSE, 0, 0, 0, 0, 0, 0, 0.0, 0.0)
        case _:
            data = b"\x92\xa6status\x80"
            return HEAD.pack(Kind.ASK, 0, 0, 0, 0, len(data), number, 1.0, 0.0) + data
