"""One worker process, with the pool's side of the conversation played by hand."""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from pool.wire import worker_messages as wire
from pool.wire.exits import Exit
from pool.wire.frames import decode, encode
from pool.wire.message import Message

INSTANCE = b"instance"
SECRET = b"s" * 32
SESSION = wire.SessionSettings(True, 0.0, True, False, 0, 0, {}, False)


class Bench:
    """A worker's parent: its socketpair and its endpoint."""

    def __init__(self, endpoint: str, router: "zmq.Socket[bytes] | None") -> None:
        self.router = router
        self.ours, theirs = socket.socketpair()
        with theirs:
            argv = ["--endpoint", endpoint, "--slot", "0", "--incarnation", "1"]
            argv += ["--link-fd", str(theirs.fileno()), "--parent", str(os.getpid()), "--visible-devices", ""]
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "workers", *argv],
                env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
                pass_fds=[theirs.fileno()],
                stderr=subprocess.PIPE,
                text=True,
            )
        self.ours.sendall(SECRET)

    def hear(self, kind: type[Message]) -> tuple[bytes, Message]:
        """The next message of a kind, with who sent it; others are skipped."""
        assert self.router is not None
        while True:
            route, preamble, header, *payload = self.router.recv_multipart()
            message = decode(wire.WORKER_MESSAGES, preamble, header, payload).message
            if isinstance(message, kind):
                return route, message

    def say(self, route: bytes, message: Message) -> None:
        assert self.router is not None
        self.router.send_multipart([route, *encode(message, INSTANCE)])

    def end(self) -> tuple[int, str]:
        """Its exit status and its last words."""
        _, words = self.process.communicate(timeout=20)
        return self.process.returncode, words

    def close(self) -> None:
        self.ours.close()
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def bench() -> Iterator[Bench]:
    with (
        tempfile.TemporaryDirectory(prefix="pw-") as folder,
        zmq.Context() as context,
        context.socket(zmq.ROUTER) as router,
    ):
        router.linger = 0
        router.rcvtimeo = 20_000
        endpoint = f"ipc://{Path(folder, 'workers')}"
        router.bind(endpoint)
        bench = Bench(endpoint, router)
        try:
            yield bench
        finally:
            bench.close()


def welcome(*models: wire.ModelSettings) -> wire.Welcome:
    return wire.Welcome(lanes=2, heartbeat_s=1.0, gpus=0, session=SESSION, models=models)


def test_a_worker_without_models_is_ready_and_stops(bench: Bench) -> None:
    control, _ = bench.hear(wire.Hello)
    bench.say(control, welcome())
    for _ in range(2):
        lane, _ = bench.hear(wire.Hello)
        bench.say(lane, wire.WelcomeLane())
    _, ready = bench.hear(wire.Ready)
    assert ready == wire.Ready(2, ())
    bench.say(control, wire.Stop())
    assert bench.end() == (Exit.STOPPED, "")


def test_a_load_that_failed_for_now_has_a_status_of_its_own(bench: Bench) -> None:
    control, _ = bench.hear(wire.Hello)
    bench.say(control, welcome(wire.ModelSettings("busy", "stub:load-failed", True)))
    status, words = bench.end()
    assert Exit(status) is Exit.LOAD_FAILED
    assert Exit(status).restartable
    assert words == "model busy: stub:load-failed cannot be loaded now: out of memory\n"


def test_a_pool_that_ends_before_it_answers(bench: Bench) -> None:
    bench.hear(wire.Hello)
    bench.ours.close()
    assert bench.end() == (Exit.POOL_GONE, "")


def test_a_pool_that_is_not_there() -> None:
    with tempfile.TemporaryDirectory(prefix="pw-") as folder:
        bench = Bench(f"ipc://{folder}/nobody", None)
        try:
            bench.ours.close()
            assert bench.end() == (Exit.POOL_GONE, "")
        finally:
            bench.close()


def test_an_endpoint_that_is_none_is_one_line() -> None:
    bench = Bench("nonsense", None)
    try:
        status, words = bench.end()
        assert status == Exit.WRONG_ENVIRONMENT
        assert words.count("\n") == 1
        assert "cannot connect to 'nonsense'" in words
    finally:
        bench.close()


@pytest.mark.parametrize("answer", [wire.WelcomeLane(), None], ids=["another message", "no message"])
def test_an_answer_to_hello_that_is_no_welcome_is_one_line(bench: Bench, answer: Message | None) -> None:
    control, _ = bench.hear(wire.Hello)
    if answer is not None:
        bench.say(control, answer)
    else:
        assert bench.router is not None
        bench.router.send_multipart([control, b"junk", b""])
    status, words = bench.end()
    assert status == Exit.WRONG_ENVIRONMENT
    assert words.count("\n") == 1
    assert "the pool answered HELLO with" in words
