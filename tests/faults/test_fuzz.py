"""Mutated real traffic at every socket: the pool answers its other clients throughout, and holds no more than before.

`pytest -m fuzz` runs it for minutes; the seed is in every failure, and $FUZZ_SEED sets it.
"""

import contextlib
import os
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgpack
import numpy as np
import pytest
import zmq

from faults.evidence import kept
from faults.strangers import Borrower, Stranger
from pool import Client, errors
from pool.wire.refusal import Refusal
from pool.wire.worker_messages import WORKER_MESSAGES
from support.fault_orders import descriptors, segments
from support.mutations import mutated
from support.pool_process import PoolProcess, pool_process, stub_config
from support.processes import eventually

TESTS = Path(__file__).parents[1]
SEED = os.environ.get("FUZZ_SEED", "20261121")
LONG_S = 90.0
LONGER_S = 300.0  # a run goes on until each kind of message was mutated, but for no longer than this
MAD_KINDS = {"Hello", "Beat", "Ready", "Run", "Done"}
SANE_KINDS = {32, 35, 36, 38}  # HELLO, BEAT, READY, DONE
RARE_KINDS = {"Welcome"}  # in a run of minutes
SAID = {**WORKER_MESSAGES, Refusal.kind: Refusal}  # to a HELLO of another version
GROWTH_BYTES = 24 << 20
LOOK_S = 0.05
FORGOTTEN_S = 60.0  # the pool calls a client gone that has said nothing for 30 s, in which it was not held up itself
MODELS = """
[[model]]
name = "rows"
path = "stub:rows"
batching = "always"
devices = "all"
[[model]]
name = "echo"
path = "stub:echo"
devices = "all"
"""
REST = """
[health]
heartbeat = "50ms"
hung_after = "6s"
import_timeout = "5s"
[restart]
intensity = 1000000
backoff_max = "50ms"
[crash_reports]
keep = 10
"""

Message = list[bytes]


@dataclass
class Relay:
    """Between one client and the pool: notes what the client says, and may change what it hears."""

    pool_endpoint: str
    endpoint: str
    change: Callable[[Message], Message] = lambda frames: frames
    said: list[Message] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> "Relay":
        self._thread = threading.Thread(target=self._main, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(10)

    def _main(self) -> None:
        with zmq.Context() as context, context.socket(zmq.ROUTER) as near, contextlib.ExitStack() as stack:
            near.linger = 0
            near.bind(self.endpoint)
            far: dict[bytes, zmq.Socket[bytes]] = {}
            while not self._over.is_set():
                poller = zmq.Poller()
                for socket in (near, *far.values()):
                    poller.register(socket, zmq.POLLIN)
                ready = dict(poller.poll(20))
                if near in ready:
                    route, *frames = near.recv_multipart()
                    if route not in far:
                        far[route] = stack.enter_context(context.socket(zmq.DEALER))
                        far[route].linger = 0
                        far[route].connect(self.pool_endpoint)
                    self.said.append(frames)
                    far[route].send_multipart(frames)
                for route, socket in far.items():
                    if socket in ready and (frames := self.change(socket.recv_multipart())):
                        near.send_multipart([route, *frames])


def chat(client: Client) -> None:
    """A little of everything that a client says."""
    client.run("rows", np.arange(4, dtype=np.float32), signature="double")
    client.run("rows", np.ones(40, np.float32), signature="double", outputs=["y"], timeout=5.0, priority=3)
    client.run("rows", {"x": [b"one", b"", b"three"]}, signature="text", device="slot:1")
    client.run("echo", np.zeros((2, 0, 3), np.float32))
    client.run("echo", 1.5)
    client.run("echo", np.ones(1 << 16, np.float32))
    client.run("echo", np.array([b"a\0", b""], object), signature="string")
    client.submit("rows", np.ones(3, np.float32), signature="view").cancel()
    client.submit("rows", np.full(1, -1, np.float32), signature="fail").exception(10)
    for question in (client.status, client.models, client.explain):
        question()


@dataclass
class Madhouse:
    """A pool whose slot 0 has a worker that is mad while `on` is there."""

    pool: PoolProcess
    folder: Path

    @property
    def on(self) -> Path:
        return self.folder / "on"

    def mutated(self) -> Counter[str]:
        """How many messages of each kind the mad workers have sent or heard in a mutated form."""
        kinds = b"".join(path.read_bytes() for path in self.folder.glob("mad-*"))
        return Counter(SAID[kind].__name__ for kind in kinds)

    def said_by_workers(self) -> list[Message]:
        said: list[Message] = []
        for diary in self.folder.glob("said-*"):
            unpacker = msgpack.Unpacker(max_buffer_size=1 << 30)
            unpacker.feed(diary.read_bytes())
            said += list(unpacker)
        return said


@pytest.fixture
def madhouse(tmp_path: Path) -> Iterator[Madhouse]:
    environ = {
        "PYTHONPATH": str(Path(__file__).with_name("fuzz_hook")),
        "FUZZ_TESTS": str(TESTS),
        "FUZZ_FOLDER": str(tmp_path),
        "FUZZ_SEED": SEED,
    }
    with pool_process(stub_config("lanes = 2", '["cpu", "cpu"]', MODELS, REST), environ) as pool:
        yield Madhouse(pool, tmp_path)
        text = pool.text()
        own_lines = [line for line in text.splitlines() if " | " not in line]
        assert not [line for line in own_lines if re.search(r"Traceback|^\w*(Error|Exception)\b", line)], SEED


def rss_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def states(client: Client) -> list[str]:
    return [slot.state for slot in client.status().slots]


def fuzz(madhouse: Madhouse, seconds: float) -> None:
    pool = madhouse.pool
    with Relay(pool.endpoint, f"ipc://{madhouse.folder}/relay") as relay, Client(relay.endpoint) as client:
        chat(client)
        chat(client)  # of calls that are known by then
        client.run("rows", np.ones(1, np.float32), signature="double", device="slot:0")  # whose messages are kept
        # A busy machine may hold up the thread that beats.
        eventually(lambda: {frames[0][5] for frames in madhouse.said_by_workers()} == SANE_KINDS)
    to_front, to_back = relay.said, madhouse.said_by_workers()
    held = descriptors(pool.pid), segments(pool.pid)
    assert len(to_front) > 10
    strangers = [
        Stranger(pool.endpoint, to_front, random.Random(f"{SEED}/front/1")),
        Stranger(pool.endpoint, [*to_front, *to_back], random.Random(f"{SEED}/front/2")),
        Stranger(f"{pool.endpoint}.workers", [*to_back, *to_front], random.Random(f"{SEED}/back")),
        borrower := Borrower(pool.endpoint, f"{pool.socket}.memory", random.Random(f"{SEED}/segments")),
    ]
    for stranger in strangers:
        stranger.start()
    with pool.client() as polite:
        sane_worker = polite.status().slots[1].incarnation  # the first may have taken too long to start
        madhouse.on.touch()
        began, early, turns = time.monotonic(), 0, 0
        while (elapsed := time.monotonic() - began) < seconds or (
            elapsed < seconds + LONGER_S and not madhouse.mutated().keys() >= MAD_KINDS
        ):
            turns += 1
            value = np.array([turns], np.float32)
            # What a worker that is mad answers may be anything, so long as it is an answer.
            anywhere = polite.submit("rows", value, signature="double", timeout=20)
            here = polite.run("rows", value, signature="double", timeout=20, device="slot:1")
            assert here["y"].tolist() == [2.0 * turns], SEED
            assert isinstance(anywhere.exception(30), errors.PoolError | None), SEED
            if not early and elapsed > seconds / 3:
                early = rss_bytes(pool.pid)
        madhouse.on.unlink()
        for stranger in strangers:
            stranger.end()
        assert rss_bytes(pool.pid) - early < GROWTH_BYTES, SEED
        eventually(lambda: set(states(polite)) == {"READY"}, 40, lambda: states(polite))
        status, mad = polite.status(), madhouse.mutated()
        print(  # noqa: T201  # `pytest -s` shows it
            f"\nfuzz, seed {SEED}: {[stranger.sent for stranger in strangers]} messages, {turns} jobs of others,"
            f" {status.slots[0].incarnation} mad workers, mutated with them: {dict(mad)};"
            f" {rss_bytes(pool.pid) - early:+d} bytes;"
            f" refused {sum(status.refused.values())}, dropped {sum(status.dropped.values())}"
        )
        assert status.slots[0].incarnation > 1, "nobody was mad"
        assert mad.keys() >= (MAD_KINDS if seconds < LONG_S else MAD_KINDS | RARE_KINDS), mad
        assert not re.search(r" (FATAL|WRONG_ENVIRONMENT)\b", pool.text()), f"seed {SEED}: a message ended a slot"
        deaths = [line for line in pool.text().splitlines() if re.search(r"slot 1 cpu:1 (STOPPING|BACKOFF)", line)]
        assert status.slots[1].incarnation == sane_worker, f"no client can end a worker: {deaths}"
        for slot in (0, 1):
            sane = polite.run("rows", np.ones(2, np.float32), signature="double", timeout=30, device=f"slot:{slot}")
            assert sane["y"].tolist() == [2.0, 2.0], SEED
    assert borrower.lent > 1, "nobody was lent anything"
    eventually(
        lambda: descriptors(pool.pid) <= held[0] and segments(pool.pid) <= held[1],
        FORGOTTEN_S,
        lambda: (held, descriptors(pool.pid), segments(pool.pid)),
    )


@pytest.mark.faults
@pytest.mark.timeout(500)
def test_mutated_traffic_at_the_pool_and_at_a_worker(madhouse: Madhouse) -> None:
    with kept(madhouse.pool, madhouse.folder, f"fuzz, seed {SEED}"):
        fuzz(madhouse, 8.0)


@pytest.mark.fuzz
@pytest.mark.timeout(900)
def test_mutated_traffic_for_minutes(madhouse: Madhouse) -> None:
    with kept(madhouse.pool, madhouse.folder, f"fuzz, seed {SEED}"):
        fuzz(madhouse, float(os.environ.get("FUZZ_S", "180")))


@pytest.mark.faults
def test_a_client_that_hears_what_is_mutated_ends_every_future(tmp_path: Path) -> None:
    rng = random.Random(f"{SEED}/answers")
    heard: list[Message] = []

    def change(frames: Message) -> Message:
        heard.append(frames)
        return mutated(rng, frames, heard) if rng.random() < 0.1 else frames

    looks, over = 0, threading.Event()

    def look() -> None:
        """Counts the time in which this process runs: while a busy machine holds it up nothing can end here."""
        nonlocal looks
        while not over.wait(LOOK_S):
            looks += 1

    clock = threading.Thread(target=look)
    with (
        pool_process(stub_config(models=MODELS)) as pool,
        Relay(pool.endpoint, f"ipc://{tmp_path}/r", change) as relay,
        contextlib.ExitStack() as ends,
    ):
        clock.start()
        ends.callback(clock.join)
        ends.callback(over.set)
        for _ in range(10):
            with Client(relay.endpoint) as client:
                values = [np.array([n], np.float32) for n in range(30)]
                futures = [client.submit("rows", value, signature="double", timeout=0.5) for value in values]
                began = looks
                ended = [future.exception(60) for future in futures]
                assert (looks - began) * LOOK_S < 6, SEED
                assert all(isinstance(end, errors.PoolError | None) for end in ended), SEED
