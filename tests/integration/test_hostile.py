"""What a client or a stranger sends: answered or dropped with a counted reason, and the pool goes on."""

import os
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
import zmq

from pool import Client, errors
from pool.client.payload import encode_call
from pool.client.shared_memory import Piece
from pool.serve.refusals import MOST_REASONS, count
from pool.wire import client_messages as wire
from pool.wire.calls import ROWS, Table, TensorHeader
from pool.wire.codec import pack
from pool.wire.faults import Fault
from pool.wire.frames import MAGIC, NO_INSTANCE, VERSION, decode, encode
from pool.wire.lent import AnswerSpace, Lent
from pool.wire.message import Message
from pool.wire.worker_messages import Beat, Done, Hello, Phase
from support.asked import Asked, Numbers, framed
from support.pool_process import PoolProcess, pool_process, stub_config


@pytest.fixture(scope="module")
def pool() -> Iterator[PoolProcess]:
    """Whatever comes, its log has no traceback."""
    with pool_process(stub_config()) as running:
        yield running
        assert "Traceback" not in running.whole_log()


def submission(job: int, timeout_s: float = 5.0, rows: int | None = None, signature: str | None = None) -> Asked:
    return Asked(job, "echo", signature, None, rows, timeout_s, 0, None, 0, False)


def table(*headers: TensorHeader) -> bytes:
    return pack(Table(headers))


@pytest.fixture
def dealer(pool: PoolProcess) -> "Iterator[zmq.Socket[bytes]]":
    """A client made by hand."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        socket.rcvtimeo = 5000
        socket.connect(pool.endpoint)
        yield socket


def opened(dealer: "zmq.Socket[bytes]") -> bytes:
    """Says OPEN and returns the instance."""
    dealer.send_multipart(encode(wire.Open("by hand"), NO_INSTANCE))
    frames = dealer.recv_multipart()
    assert isinstance(decode(wire.CLIENT_MESSAGES, frames).message, wire.Opened)
    return frames[0][6:14]


def answer(dealer: "zmq.Socket[bytes]") -> Any:
    """A message; the only result of one of results."""
    message = decode(wire.CLIENT_MESSAGES, dealer.recv_multipart()).message
    return message.results[0] if isinstance(message, wire.Results) else message


def test_another_protocol_version_is_refused_by_name(dealer: "zmq.Socket[bytes]", client: Client) -> None:
    dealer.send_multipart([MAGIC + bytes((VERSION + 1, 1)) + NO_INSTANCE, b""])
    refusal = answer(dealer)
    assert isinstance(refusal, wire.Refusal)
    assert f"protocol version {VERSION + 1} from the other side, {VERSION} here" in refusal.text
    assert client.status().refused


def test_reasons_are_counted_within_bounds() -> None:
    reasons: Counter[str] = Counter()
    assert count(reasons, "a")
    assert not count(reasons, "a")
    news = sum(count(reasons, f"invented {number}") for number in range(10_000))
    assert news <= MOST_REASONS
    assert len(reasons) <= MOST_REASONS + 1
    assert reasons.total() == 10_002


def test_a_client_of_another_version_hears_so() -> None:
    """The pool's side of a mismatch, played by hand: the client says which side to upgrade."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.linger = 0
        router.rcvtimeo = 5000
        port = router.bind_to_random_port("tcp://127.0.0.1")
        with Client(f"tcp://127.0.0.1:{port}") as client:
            future = client.submit("echo", 1.0)
            route, *_ = router.recv_multipart()
            router.send_multipart([route, MAGIC + bytes((VERSION + 1, 0)) + NO_INSTANCE, b"whatever"])
            with pytest.raises(errors.Incompatible, match="install the same release on both"):
                future.result(10)


def test_a_message_for_an_earlier_instance_is_refused(dealer: "zmq.Socket[bytes]") -> None:
    opened(dealer)
    dealer.send_multipart(framed(submission(1), b"formerly", encode_call("echo", 1.0)[1]))
    refusal = answer(dealer)
    assert isinstance(refusal, wire.Refusal)
    assert "another instance" in refusal.text


def test_a_worker_without_the_secret_is_nobody(pool: PoolProcess, client: Client) -> None:
    before = sum(client.status().dropped.values())
    with zmq.Context() as context, context.socket(zmq.DEALER) as stranger:
        stranger.linger = 500
        stranger.connect(f"{pool.endpoint}.workers")
        stranger.send_multipart(encode(Hello(0, 1, None, b"x" * 32), NO_INSTANCE))
        stranger.send_multipart(encode(Done(1, (), (), 0.0, 0.0), NO_INSTANCE))
        stranger.send_multipart([b"junk"])
        deadline = time.monotonic() + 10
        while sum(client.status().dropped.values()) < before + 3:
            assert time.monotonic() < deadline
    assert client.run("echo", 1.0)["x"] == 1.0


def test_a_client_cannot_speak_as_a_worker(dealer: "zmq.Socket[bytes]") -> None:
    instance = opened(dealer)
    dealer.send_multipart(encode(Beat(Phase.SERVING, "", ()), instance))
    refusal = answer(dealer)
    assert isinstance(refusal, wire.Refusal)
    assert "no message kind 35" in refusal.text
    dealer.send_multipart(encode(wire.Pong(), instance))
    refusal = answer(dealer)
    assert isinstance(refusal, wire.Refusal)
    assert "Pong is not a client's message" in refusal.text


@pytest.mark.parametrize(
    ("rows", "payload", "complaint"),
    [
        (None, [], "it has no table"),
        (None, [b"\xc1"], "not msgpack"),
        (None, [table(), b"x"], "missing input 'x'"),
        (None, [table(TensorHeader("x", "float32", (3,), False)), b"xx"], "2 bytes for float32"),
        (None, [table(TensorHeader("x", "float32", (3,), False)), bytes(12), b""], "2 buffers"),
        (None, [table(TensorHeader("x", "object", (), False)), b""], "no dtype"),
        (None, [table(TensorHeader("x", "float32", (-1,), False)), b""], "no shape"),
        (None, [table(TensorHeader("x", "float32", (0, 1 << 62), False)), b""], None),
        (None, [table(TensorHeader("x", "string", (1 << 40,), False)), b"12345678"], "8 bytes are too few"),
        (1, [b"\xc1"], "not msgpack"),
        (1, [table(), b"x"], "0 tensors"),
        (3, [table(TensorHeader("x", "float32", (ROWS,), False)), b"xx"], "2 bytes where 3 rows have 12"),
        (1, [table(TensorHeader("x", "object", (ROWS,), False)), b""], "no dtype"),
        (3, [table(TensorHeader("x", "float32", (3,), False)), bytes(12)], "no shape of rows"),
        (1 << 31, [table(TensorHeader("x", "float32", (ROWS, 0), False)), b""], "rows without a byte in them"),
        (9, [table(TensorHeader("x", "string", (ROWS,), False)), b"12345678"], "8 bytes are too few"),
    ],
)
def test_a_job_that_lies_is_answered(
    pool: PoolProcess,
    dealer: "zmq.Socket[bytes]",
    client: Client,
    rows: int | None,
    payload: list[bytes],
    complaint: str | None,
) -> None:
    workers = pool.workers()
    instance = opened(dealer)
    signature = "string" if b"string" in b"".join(payload) else None
    dealer.send_multipart(framed(submission(7, rows=rows, signature=signature), instance, payload))
    reply = answer(dealer)
    if complaint is not None:
        assert isinstance(reply, wire.Failure)
        assert reply.job == 7
        assert reply.fault is Fault.INVALID_INPUT
        assert complaint in reply.text
        assert "\n" not in reply.text
    assert client.run("echo", 1.0)["x"] == 1.0
    assert pool.workers() == workers, "no worker died of it"


def test_a_huge_header_is_refused_unread(dealer: "zmq.Socket[bytes]", client: Client) -> None:
    preamble, _ = encode(wire.Cancel(7), opened(dealer))
    dealer.send_multipart([preamble, b"\xdd" + (1 << 20).to_bytes(4, "big") + b"\x80" * (1 << 20), b"call"])
    refusal = answer(dealer)
    assert isinstance(refusal, wire.Refusal)
    assert "a header of" in refusal.text
    assert client.run("echo", 1.0)["x"] == 1.0


def test_countless_frames_are_refused_and_hold_up_nobody(
    pool: PoolProcess, dealer: "zmq.Socket[bytes]", client: Client
) -> None:
    instance = opened(dealer)
    before = rss_bytes(pool.pid)
    for job in range(4):
        dealer.send_multipart([*framed(submission(job, 50.0), instance), *([b""] * 50_000)])
    for _ in range(4):
        refusal = answer(dealer)
        assert isinstance(refusal, wire.Refusal)
        assert "a message of more than 4096 frames" in refusal.text
    assert client.run("echo", 1.0)["x"] == 1.0
    # What the kernel and libzmq hold of it is freed for use again, if not given back: 64 bytes a frame.
    assert rss_bytes(pool.pid) - before < 4 * 50_000 * 64 + (16 << 20)


def rss_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_bad_numbers_of_a_submit(dealer: "zmq.Socket[bytes]") -> None:
    instance = opened(dealer)
    _, payload = encode_call("echo", 1.0)
    for timeout in (float("nan"), float("inf"), -1.0):
        dealer.send_multipart(framed(submission(1, timeout), instance, payload))
        reply = answer(dealer)
        assert isinstance(reply, wire.Refusal)
        assert "give a positive number" in reply.text
    dealer.send_multipart(framed(submission(1, 1e300), instance, payload))
    reply = answer(dealer)
    assert isinstance(reply, wire.Failure)
    assert "give a positive number up to 1e+08" in reply.text


def bad_messages() -> list[tuple[Message | Asked, Sequence[bytes | Piece], str]]:
    """Well-formed messages with fields that no client of this release sends, and what each is told; "": anything."""
    job = submission(7, 20.0, rows=2)
    _, rows = encode_call("echo", np.ones(2, np.float32))
    _, whole = encode_call("echo", 1.0)
    last = (1 << 64) - 1
    return [
        (replace(job, origin=last), rows, "numbers are from 0"),
        (replace(job, job=last), rows, "numbers are from 0"),
        (replace(job, weight=3), rows, "3 jobs in one message with 2 rows"),
        (replace(job, weight=(1 << 16) - 1), rows, "65535 jobs in one message"),
        (replace(job, rows=last), rows, "it has 4294967295 rows"),
        (replace(job, attempts=last), rows, "times while it held the job"),
        (replace(job, timeout_s=1e300), rows, "give a positive number up to 1e+08"),
        (replace(job, priority=127), rows, "give one from -100 to 100"),
        (replace(job, outputs=("ab",) * 21_000, rows=None), whole, "21000 outputs"),
        (replace(job, outputs=("x", "x")), rows, "named twice"),
        (replace(job, model="m" * 5000), rows, "a name of 5000"),
        (replace(job, version=last), rows, ""),
        (replace(job, device="\0"), rows, "is not a device of this pool"),
        (replace(job, lent=(Lent(0, (1 << 32) - 1, last, last),)), [rows[0], b""], "is not lent to this client"),
        (replace(job, space=AnswerSpace((1 << 32) - 1, last, last)), rows, "is not lent to this client"),
        (wire.Ask(last, "load", "[" * 30_000), [], "give the name and the path"),
        (wire.Ask(-1, "explain", "slot:" + "9" * 5000), [], "there is no slot"),
        (wire.Ask(0, "restart", "-1 \0"), [], ""),
        (wire.Ask(0, "x" * 60_000, ""), [], "does not know how to answer"),
    ]


@pytest.mark.promise(5)
def test_each_bad_message_is_answered_while_others_are_served(
    pool: PoolProcess, dealer: "zmq.Socket[bytes]", client: Client
) -> None:
    """The other client has a job out all the time; nobody's worker dies, and nothing is a mistake of the pool's."""
    workers = pool.workers()
    instance = opened(dealer)
    busy = client.submit("faults", 1.0, signature="sleep", timeout=60)
    for number, (message, payload, complaint) in enumerate(bad_messages()):
        beside = client.submit("echo", float(number), timeout=30)
        dealer.send_multipart(framed(message, instance, payload))
        dealer.send_multipart(encode(wire.Cancel((1 << 64) - 1), instance))
        told = answer(dealer)
        while isinstance(told, wire.Released):
            told = answer(dealer)
        assert isinstance(told, wire.Failure | wire.Answer), (message, told)
        assert complaint in repr(told), message
        assert beside.result(30)["x"] == number
    assert busy.result(60)
    assert pool.workers() == workers
    assert not [reason for reason in client.status().refused if "the pool failed" in reason]


def test_chunks_members_and_origins_that_lie_gain_nothing() -> None:
    """One that is no chunk of the call's, one that was never in any, and one that says so of another's number."""
    rows = '[[model]]\nname = "rows"\npath = "stub:rows"\n'
    with (
        pool_process(stub_config(devices='["cpu"]', models=rows)) as pool,
        zmq.Context() as context,
        context.socket(zmq.DEALER) as dealer,
        pool.client() as client,
    ):
        dealer.linger = 0
        dealer.rcvtimeo = 5000
        dealer.connect(pool.endpoint)
        instance = opened(dealer)
        client.run("rows", np.ones(1, np.float32), signature="double")
        _, payload = encode_call("rows", np.array([-1, 5], np.float32))
        chunk = Asked((1 << 63) - 1, "rows", "fail", None, 2, 20.0, 0, None, 0, False, weight=2)
        dealer.send_multipart(framed(chunk, instance, payload))
        unpacked = answer(dealer)
        assert isinstance(unpacked, wire.Unpack)
        assert unpacked.job == chunk.job
        for number in range(1, 5):  # more than were in it
            submit = Asked(number, "rows", "double", None, 2, 20.0, origin=chunk.job)
            dealer.send_multipart(framed(submit, instance, payload))
        done: set[int] = set()
        while len(done) < 4:
            message = decode(wire.CLIENT_MESSAGES, dealer.recv_multipart()).message
            assert isinstance(message, wire.Results), message
            done.update(result.job for result in message.results)
        assert done == {1, 2, 3, 4}
        assert client.run("rows", np.ones(1, np.float32), signature="double")["y"] == [2.0]


@pytest.mark.promise(5)
def test_mutated_traffic_never_stops_the_pool(pool: PoolProcess, client: Client) -> None:
    """Real messages with a few bytes changed, cut or doubled; a polite client is served throughout."""
    seed = 20_261_121
    rng = random.Random(seed)
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.linger = 0
        dealer.rcvtimeo = 5000
        dealer.connect(pool.endpoint)
        instance = opened(dealer)
        numbers = Numbers()
        jobs = [
            (submission(1, 2.0), encode_call("echo", np.float32(1))[1]),
            (submission(1, 2.0, rows=4), encode_call("echo", np.ones(4, np.float32))[1]),
            (submission(1, 2.0, 3, "string"), encode_call("echo", [b"a", b"", b"bc"])[1]),
        ]
        registered = [numbers.said(asked, payload, instance) for asked, payload in jobs]
        for frames in registered:
            dealer.send_multipart(frames)
        templates = [
            *registered,
            *[numbers.said(asked, payload, instance) for asked, payload in jobs for _ in range(3)],
            encode(wire.Cancel(1), instance),
            encode(wire.Ping(), instance),
            encode(wire.Ask(1, "explain", "1"), instance),
        ]
        for turn in range(600):
            changed = [bytearray(frame) for frame in rng.choice(templates)]
            for _ in range(rng.randint(1, 4)):
                frame = rng.choice(changed)
                if frame:
                    frame[rng.randrange(len(frame))] = rng.randrange(256)
            if rng.random() < 0.2:
                changed.pop(rng.randrange(len(changed)))
            if rng.random() < 0.1:
                changed.append(bytearray(msgpack.packb({"a": list(range(9))})))
            if changed:
                dealer.send_multipart([bytes(frame) for frame in changed])
            if turn % 50 == 0:
                assert client.run("echo", float(turn), timeout=10)["x"] == turn, seed
    assert client.run("echo", 1.0)["x"] == 1.0
    assert pool.running.poll() is None
