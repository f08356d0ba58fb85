"""One worker process, with the pool's side of the conversation played by hand."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import zmq

from pool.wire import worker_messages as wire
from pool.wire.calls import ROWS, Table, TensorHeader
from pool.wire.codec import pack
from pool.wire.exits import Exit
from pool.wire.faults import Fault
from pool.wire.frames import VERSION, decode, encode
from pool.wire.message import Message
from pool.wire.packing import unpack_answer
from pool.wire.refusal import Refusal
from support.outcomes import PartDone, outcomes_of

INSTANCE = b"instance"
SECRET = b"s" * 32
SETTINGS = wire.TensorFlowSettings(True, 0.0, True, False, 0, 0, {}, False)


class Bench:
    """A worker's parent: its socketpair and its endpoint."""

    def __init__(self, endpoint: str, router: "zmq.Socket[bytes] | None", *more: str) -> None:
        self.router = router
        self.ours, theirs = socket.socketpair()
        with theirs:
            argv = ["--endpoint", endpoint, "--slot", "0", "--incarnation", "1"]
            argv += ["--link-fd", str(theirs.fileno()), "--parent", str(os.getpid()), "--visible-devices", "", *more]
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
        return self.hear_all(kind)[:2]

    def hear_all(self, kind: type[Message]) -> tuple[bytes, Message, list[bytes]]:
        assert self.router is not None
        while True:
            route, *frames = self.router.recv_multipart()
            envelope = decode(wire.WORKER_MESSAGES, frames)
            message = envelope.message
            if isinstance(message, kind):
                return route, message, list(map(bytes, envelope.payload))

    def say(self, route: bytes, message: Message, payload: list[bytes] | None = None) -> None:
        assert self.router is not None
        self.router.send_multipart([route, *encode(message, INSTANCE, payload or [])])

    def serve(self, path: str) -> tuple[bytes, bytes]:
        """Welcomes the worker and its lanes, until it is ready with model m; the control's route and one lane's."""
        control, _ = self.hear(wire.Hello)
        self.say(control, welcome(wire.ModelSettings("m", path, True)))
        for _ in range(2):
            lane, _ = self.hear(wire.Hello)
            self.say(lane, wire.WelcomeLane())
        self.hear(wire.Ready)
        return control, lane

    def run(self, lane: bytes, signature: str, *parts: list[float], pad_to: int = 0) -> None:
        """A batch of parts of one float a row."""
        rows = tuple(map(len, parts))
        run = wire.Run(7, "m", signature, None, rows, max(pad_to, sum(rows)), True)
        table = pack(Table((TensorHeader("", "float32", (ROWS,), False),)))
        self.say(lane, run, [table, *(np.array(part, np.float32).tobytes() for part in parts)])

    def done(self) -> tuple[wire.Done, list[dict[str, list[float]]]]:
        """The outcomes of a batch, and the answers among them."""
        _, done, payload = self.hear_all(wire.Done)
        assert isinstance(done, wire.Done)
        frames = iter(payload)
        answers = [
            unpack_answer([next(frames) for _ in range(outcome.frames)])
            for outcome in outcomes_of(done)
            if isinstance(outcome, PartDone)
        ]
        assert next(frames, None) is None
        return done, [{name: array.tolist() for name, array in answer.items()} for answer in answers]

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
    return wire.Welcome(lanes=2, heartbeat_s=1.0, gpus=0, tensorflow=SETTINGS, models=models)


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


def test_a_file_for_its_stacks_that_was_not_inherited_is_one_line() -> None:
    bench = Bench("ipc:///none", None, "--stacks-fd", "97")
    try:
        assert bench.end() == (Exit.WRONG_ENVIRONMENT, "worker of slot 0: --stacks-fd 97: Bad file descriptor\n")
    finally:
        bench.close()


def test_without_a_file_for_its_stacks_those_of_a_crash_are_its_last_words(bench: Bench) -> None:
    bench.hear(wire.Hello)
    bench.process.send_signal(signal.SIGSEGV)
    status, words = bench.end()
    assert status == -signal.SIGSEGV
    assert words.startswith("Fatal Python error: Segmentation fault")
    assert "workers/worker.py" in words  # the main thread may be anywhere in its wait for WELCOME


@pytest.mark.parametrize("answer", [wire.WelcomeLane(), None], ids=["another message", "no message"])
def test_an_answer_to_hello_that_is_no_welcome_is_one_line_and_the_next_worker_may_hear_better(
    bench: Bench, answer: Message | None
) -> None:
    control, _ = bench.hear(wire.Hello)
    if answer is not None:
        bench.say(control, answer)
    else:
        assert bench.router is not None
        bench.router.send_multipart([control, b"junk", b""])
    status, words = bench.end()
    assert Exit(status) is Exit.CRASHED
    assert Exit(status).restartable
    assert words.count("\n") == 1
    assert "the pool answered HELLO with" in words


@pytest.mark.parametrize("version", [VERSION + 1, VERSION - 1])
@pytest.mark.parametrize("answer", [Refusal("why"), welcome()], ids=["REFUSAL", "whatever"])
def test_a_pool_of_another_release_has_a_status_of_its_own(bench: Bench, answer: Message, version: int) -> None:
    control, _ = bench.hear(wire.Hello)
    preamble, header = encode(answer, INSTANCE)
    assert bench.router is not None
    bench.router.send_multipart([control, preamble[:4] + bytes((version,)) + preamble[5:], header])
    status, words = bench.end()
    assert Exit(status) is Exit.OTHER_RELEASE
    assert words == (
        f"protocol version {version} from the other side, {VERSION} here: install the same release on both sides, "
        "and restart a pool that was started before\n"
    )


def test_a_command_line_of_another_release_has_the_same_status() -> None:
    bench = Bench("ipc:///none", None, "--a-new-option", "1")
    try:
        status, words = bench.end()
        assert Exit(status) is Exit.OTHER_RELEASE
        assert words.startswith("this command line is not from a pool of this release: ")
        assert words.count("\n") == 1
    finally:
        bench.close()


def test_a_batch_is_run_once_and_each_part_gets_its_rows(bench: Bench) -> None:
    control, lane = bench.serve("stub:rows?run_ms=20&row_ms=5")
    began = time.monotonic()
    bench.run(lane, "double", [1], [2, 3], [4], pad_to=8)
    done, answers = bench.done()
    assert done.batch == 7
    assert answers == [
        {"y": [2], "batch": [8]},
        {"y": [4, 6], "batch": [8, 8]},
        {"y": [8], "batch": [8]},
    ]
    assert done.run_s >= 0.02 + 8 * 0.005
    assert 0 < done.fetch_s < time.monotonic() - began - done.run_s
    bench.say(control, wire.Stop())
    assert bench.end() == (Exit.STOPPED, "")


def test_a_lane_goes_on_after_whatever_a_batch_brings(bench: Bench) -> None:
    _, lane = bench.serve("stub:rows?fits=2")
    spoiled = wire.Spoiled(Fault.MODEL_FAILED, "a row is negative")
    bench.run(lane, "fail", [1], [-1])
    assert tuple(outcomes_of(bench.done()[0])) == (spoiled, spoiled)
    bench.run(lane, "fail", [-1])
    assert tuple(outcomes_of(bench.done()[0])) == (wire.Failed(Fault.MODEL_FAILED, "a row is negative"),)
    bench.run(lane, "oom", [1, 2], [3])
    outcomes = list(outcomes_of(bench.done()[0]))
    assert len(outcomes) == 2
    for outcome in outcomes:
        assert isinstance(outcome, wire.Failed | wire.Spoiled)
        assert outcome.fault is Fault.OUT_OF_MEMORY
    bench.run(lane, "oom", [1, 2])
    assert bench.done()[1] == [{"y": [1, 2]}]
    bench.run(lane, "shrink", [1], [2])
    assert [type(outcome) for outcome in outcomes_of(bench.done()[0])] == [wire.RowsChanged] * 2
    bench.run(lane, "view", [1], [2, 3])
    assert bench.done()[1] == [{"column": [[1]], "same": [1]}, {"column": [[2], [3]], "same": [2, 3]}]


def test_a_row_that_kills_takes_the_worker_along(bench: Bench) -> None:
    _, lane = bench.serve("stub:rows")
    bench.run(lane, "kill", [1], [2])
    assert bench.done()[1] == [{"y": [1]}, {"y": [2]}]
    bench.run(lane, "kill", [1], [-1])
    assert bench.end() == (-signal.SIGKILL, "")


def test_a_broken_process_ends_at_once_and_answers_nobody(bench: Bench) -> None:
    _, lane = bench.serve("stub:rows")
    bench.run(lane, "unusable", [1], [-1])
    status, words = bench.end()
    assert Exit(status) is Exit.PROCESS_UNUSABLE
    assert Exit(status).restartable
    assert words == "worker unusable, the pool replaces it: model m: a row broke this process\n"
    assert bench.router is not None
    while bench.router.poll(0):
        _, *frames = bench.router.recv_multipart()
        assert not isinstance(decode(wire.WORKER_MESSAGES, frames).message, wire.Done)
