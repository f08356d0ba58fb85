"""What an attacker does who knows the wire. Each attack also asserts how it is refused."""

import gzip
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from functools import partial

import grpc
import msgpack
import numpy as np
import zmq

from attacks.siege import Siege
from pool.wire.bodies import HEAD, PART, SHARED, Kind, pack
from pool.wire.link import SEALS
from pool.wire.specs import job_spec
from support import liar
from support.doors import connected
from support.pools import until
from support.raw import RawClient, RawSocket, flood, job, lingering, memory, shared_job

X = np.ones((1, 1), np.float32)
ATTACKS: dict[str, Callable[[Siege], None]] = {}
DYING = """
import sys, numpy
from pool import Client
client = Client(sys.argv[1])
wide, futures = numpy.ones((1, 20_000), numpy.float32), []
while True:
    futures = [client.submit("wide", {"x": wide}), *futures[:500]]
    print(flush=True)
"""
TENSORS = [[7], [["x", "float33", [1]]], [["x", "float32", [-1]]], [["x", "float32", [1 << 46] * 32]]]
TENSORS += [[["x", "float32", [True]]], [["x", "float32", [1] * 33]], [["x", "float32", 1]], [["x", "float32"]]]
TENSORS += [[["x", "float32", [1, 1]]] * 2, [["b", "float32", [1]], ["a", "float32", [1]]]]
TENSORS += [[["x" * 2000, "float32", [1]]], [[f"{number:05}", "float32", [1]] for number in range(1025)]]
FIELDS = [("nobody", "", None, tensors, -1) for tensors in (7, *TENSORS)]
FIELDS += [("nobody", "", None, [], slot) for slot in (1 << 60, -2, None, "0")]
FIELDS += [(1 << 60, "", None, [], -1), ("nobody", None, [[]], [], -1), ("nobody", "", ["y", "y"], [], -1)]
FIELDS += [("nobody", None, None, [], -1), ("nobody", "", None, []), "a text", {}]
JUNK = [b"", b"\xc1", b"\x91" * 60_000, b"\x95" + b"\xc0" * 5, b"\xdd\xff\xff\xff\xff", b"\xff" * 70]
SPECS = [*JUNK, *map(msgpack.packb, FIELDS)]


def attack(act: Callable[[Siege], None]) -> Callable[[Siege], None]:
    ATTACKS[act.__name__] = act
    return act


def client(siege: Siege) -> "closing[RawClient]":
    return closing(RawClient(siege.pool.endpoint))


def is_cut_off(client: RawClient) -> bool:
    return until(lambda: client.link.receive() is None, "the end of the link", 10)


def is_served(client: RawClient, number: int) -> bool:
    client.send(job(number, "double", x=X))
    return client.ends(1) == {number: {"y": 2}}


def with_spec(number: int, spec: bytes, data: bytes = b"", flags: int = 0) -> bytes:
    return HEAD.pack(Kind.JOB, flags, 0, 0, len(spec), len(data), number, 5.0, 0.0) + spec + data


@attack
def junk(siege: Siege) -> None:
    """Of which each costs the link."""
    right = job(7, "double", x=X)
    bad = [right * 2, right[:-1], right[:20], b"", HEAD.pack(99, 0, 0, 0, 0, 0, 1, 0.0, 0.0) + right]
    bad += [HEAD.pack(Kind.JOB, 0, 0, 0, 0, 0, 1, seconds, 0.0) for seconds in (float("nan"), -1.0, 1e30)]
    bad += [HEAD.pack(Kind.JOB, 0, 0, 0, *sizes, 1, 1.0, 0.0) for sizes in ((1 << 31, 0), (0, 1 << 31))]
    bad += [with_spec(1, bytes((64 << 10) + 1))]
    bad += [HEAD.pack(kind, 0, 0, 0, 0, 1, 1, 1.0, 0.0) + b"\xc1" for kind in (Kind.ASK, Kind.DONE, Kind.ANSWER)]
    frame = siege.chance.choice(bad)
    with client(siege) as raw:
        raw.send(*[frame] * (1 if frame else 2))
        assert is_cut_off(raw)


@attack
def mutations(siege: Siege) -> None:
    """Whatever they cost."""
    chance = siege.chance
    with client(siege) as raw:
        for number in range(20):
            texts = np.array([[b"a", b"bc"]], object)
            whole = bytearray(chance.choice([job(number, "double", x=X), job(number, "text", x=texts)]))
            for _ in range(chance.randrange(1, 4)):
                whole[chance.randrange(len(whole))] = chance.randrange(256)
            whole[2] = min(whole[2], 1)  # who has a high priority goes before the honest, and may
            if whole[0] != Kind.ASK:
                with suppress(zmq.ZMQError):
                    raw.socket.zmq.send(bytes(whole), zmq.NOBLOCK)


@attack
def specs(siege: Siege) -> None:
    """Which cannot be: one that could would only name no model."""
    with client(siege) as raw:
        for number, spec in enumerate(SPECS):
            raw.send(with_spec(number, spec))
        assert raw.ends(len(SPECS)) == dict.fromkeys(range(len(SPECS)), "InvalidInput")


@attack
def strings(siege: Siege) -> None:
    """Ends that cannot be, and such that are changed while they are read."""
    spec = job_spec("text", "", None, [("x", "string", (8,))])
    ends = np.array([8, 7, 1 << 63, 0, 9, 9, 9, 9], np.uint64).tobytes()
    with client(siege) as raw:
        raw.send(with_spec(1, spec, ends + b"a" * 9))
        assert raw.ends(1) == {1: "InvalidInput"}
        lent = memory()
        raw.link.send({"arena": 1, "bytes": 0}, lent)
        for number in range(2, 40):  # of which each may be refused
            os.pwrite(lent, np.arange(1, 9, dtype=np.uint64).tobytes() + b"a" * 8, 0)
            raw.send(with_spec(number, spec, PART.pack(1, 0, 72, 128, 64), SHARED))
            os.pwrite(lent, os.urandom(72), 0)
            with suppress(OSError):
                os.ftruncate(lent, 0)
        os.close(lent)
        assert all(end == "InvalidInput" or len(end["y"]) == 8 for end in raw.ends(38).values())


@attack
def letters(siege: Siege) -> None:
    """Which are short, and would keep the pool for long."""
    names = b"".join(with_spec(number, job_spec(f"one-of-mang-{number}", "", None, ())) for number in range(500))
    question = pack(["status", {}])
    asked = HEAD.pack(Kind.ASK, 0, 0, 0, 0, len(question), 1, 1.0, 0.0) + question
    cancel = HEAD.pack(Kind.CANCEL, 0, 0, 0, 0, 0, 1, 1.0, 0.0)
    with client(siege) as raw:
        raw.send(names)
        assert set(raw.ends(500).values()) == {"ModelNotFound"}
        raw.send(siege.chance.choice([asked * 600, cancel * (1 << 20)]))
        assert is_cut_off(raw)


@attack
def tokens(siege: Siege) -> None:
    with client(siege) as raw, client(siege) as other:
        for token in (b"0" * 16, b"", os.urandom(500)):
            stranger = RawSocket(siege.pool.endpoint, token, raw.context)
            assert [body.kind for body in stranger.receive()] == [Kind.GONE]
            stranger.zmq.close()
        thief = RawSocket(siege.pool.endpoint, other.welcome["token"], raw.context)
        thief.zmq.send(HEAD.pack(Kind.CLOSE, 0, 0, 0, 0, 0, 0, 0.0, 0.0))
        thief.zmq.send(job(1, "double", x=X))
        assert [body.kind for body in thief.receive()] == [Kind.GONE]
        thief.zmq.close()
        for _ in range(140):
            RawSocket(siege.pool.endpoint, raw.welcome["token"], raw.context).zmq.close()
        assert is_served(other, 1)


@attack
def links(siege: Siege) -> None:
    """By the hundred, and the half of a message on ZeroMQ's own socket."""
    path = siege.pool.endpoint.removeprefix("ipc://")
    with client(siege):  # else the pool cuts connections
        for number in range(300):
            is_link = number % 2
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET if is_link else socket.SOCK_STREAM) as one:
                one.connect(path + ".link" * is_link)
                with suppress(OSError):
                    one.send(siege.chance.choice([b"\xff" + bytes(8) + b"\x7f\x03", os.urandom(100), b"\x81\xa4drop"]))


@attack
def descriptors(siege: Siege) -> None:
    bad = [memory(seals=0), memory(1 << 41), os.open("/dev/zero", os.O_RDWR), os.pipe()[0], socket.socket().detach()]
    lent = siege.chance.choice(bad)
    with client(siege) as raw:
        match siege.chance.randrange(5):
            case 0:
                socket.send_fds(raw.link.socket, [pack({"arena": 1})], [lent] * siege.chance.randrange(2, 250))
            case 1:
                junk = [b"\xc1", b"\x93\x01\x02\x03", b"x" * (70 << 10)]
                socket.send_fds(raw.link.socket, [siege.chance.choice(junk)], [lent])
            case 2:
                raw.link.send({"drop": 1}, lent)
            case 3:
                for number in range(257):
                    raw.link.send({"arena": number}, good := memory())
                    os.close(good)
            case _:
                raw.link.send({"arena": 1}, lent)
        assert is_cut_off(raw)
    for each in bad:
        os.close(each)


@attack
def lingers(siege: Siege) -> None:
    lent, reader = lingering()
    with reader, client(siege) as raw, client(siege) as other:
        os.kill(siege.pool.pid, signal.SIGSTOP)
        raw.link.send({siege.chance.choice(["arena", "drop"]): 1}, lent)
        os.close(lent)  # the pool's is the last one
        os.kill(siege.pool.pid, signal.SIGCONT)
        assert is_cut_off(raw)
        assert is_served(other, 1)


@attack
def regions(siege: Siege) -> None:
    """Of another client, outside of the memory, and in such that cannot be mapped."""
    with client(siege) as raw, client(siege) as other:
        writable = memory()
        lent = {1: writable, 2: memory(0), 3: os.open(f"/proc/self/fd/{writable}", os.O_RDONLY)}
        for arena, descriptor in (*lent.items(), (4, memory(seals=SEALS | 8))):
            raw.link.send({"arena": arena}, descriptor)
            os.close(descriptor)
        parts = [(1, 1 << 20, 64, 0, 0), (1, 1 << 63, 64, 0, 0), (1, 32, 64, 0, 0), (1, 0, 64, 1 << 20, 64)]
        parts += [(1, 0, 64, 0, 64), (9, 0, 64, 0, 0), (3, 0, 64, 64, 0), (4, 0, 64, 64, 0), (1, 0, 128, 0, 0)]
        for number, part in enumerate(parts):
            raw.send(shared_job(number, "double", part, X))
        raw.send(shared_job(len(parts), "double", (2, 0, 0, 0, 0), X[:0]))
        other.send(shared_job(1, "double", (1, 0, 64, 64, 0), X))
        assert {*raw.ends(len(parts) + 1).values(), *other.ends(1).values()} == {"InvalidInput"}


@attack
def drops(siege: Siege) -> None:
    """Of memory that queued jobs name, or whose number comes again."""
    with client(siege) as raw:
        lent, arena = memory(), siege.chance.getrandbits(62)
        for number in range(60):
            if number in (0, 20):
                raw.link.send({"arena": arena}, lent)
            raw.send(shared_job(number, "slow", (arena, 0, 64, 64, 64), X))
            if number in (19, 59):
                time.sleep(0.02)  # the jobs have come, and some wait
                raw.link.send({"drop": arena})
        os.close(lent)
        assert all(end == "InvalidInput" or end == {"y": 0} for end in raw.ends(60).values())


@attack
def floods(siege: Siege) -> None:
    with client(siege) as raw, client(siege) as other, ExitStack() as floods:
        for _ in range(2):
            floods.callback(floods.enter_context(flood(raw.link.socket, pack({"drop": 1}))).kill)
        ends = time.monotonic() + 0.5
        assert all(is_served(other, number) for number in range(1000) if time.monotonic() < ends)


@attack
def unread(siege: Siege) -> None:
    """Nobody reads the answers, on several channels of one client."""
    question = pack(["logs", {}])
    asked = HEAD.pack(Kind.ASK, 0, 0, 0, 0, len(question), 1, 60.0, 0.0) + question
    with client(siege) as raw:
        sockets = [RawSocket(siege.pool.endpoint, raw.welcome["token"], raw.context) for _ in range(6)]
        with closing(poller := select.epoll()):
            poller.register(raw.link.socket, select.EPOLLIN)
            until(
                lambda: poller.poll(0) or [each.zmq.send(asked) for each in sockets * 50] * 0, "the end of the link", 40
            )
        for each in sockets:
            each.zmq.close()


@attack
def deaths(siege: Siege) -> None:
    """A client is stopped in the middle of its calls, and killed."""
    command = [sys.executable, "-c", DYING, siege.pool.endpoint]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as dying:
        for _ in range(siege.chance.randrange(1, 50)):
            dying.stdout.readline()
        os.kill(dying.pid, signal.SIGSTOP)
        time.sleep(siege.chance.random())
        dying.kill()


def lies(lie: str, siege: Siege) -> None:
    """A worker is killed, and the one after it lies."""
    slots = (status := siege.status())["slots"]
    if any(slot["state"] != "READY" for slot in slots) or siege.deaths(status) < 2 * siege.lies:
        return
    (siege.pool.folder / "lies" / f"00-{lie}").touch()
    siege.lies += 1
    os.kill(siege.chance.choice(slots)["pid"], signal.SIGKILL)


ATTACKS |= {lie: partial(lies, lie) for lie in liar.LIES}
POST = b"POST /v2/models/double/infer HTTP/1.1\r\nHost: localhost\r\n"
PACKED = POST + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s"
BOMB = gzip.compress(bytes(64 << 20))
ASKED = b'{"inputs": [{"name": "%s", "datatype": "%s", "shape": [%d, 1], "data": [%s]}], "id": "\\ud800"}'
TOLD = ((b"\\ud800", b"FP32", 1, b"1e999"), (b"x", b"\\ud800", 1, b"[[]]"), (b"x", b"FP32", 1 << 60, b'"a", [1]'))
JSONS = [b"[" * 100_000, b'{"a":' * 100_000, b"9" * 100_000, *(ASKED % each for each in TOLD)]
JSONS += [b'{"inputs": [], "parameters": {"signature": "\\ud800"}}', b'{"inputs": 7}']
REQUESTS = [
    *((POST + b"Content-Length: %d\r\n\r\n%s" % (len(text), text), 400) for text in JSONS),
    (PACKED % (len(BOMB), BOMB), 413),
    (PACKED % (9, b"\x1f\x8b\x08junk!!"), 400),
    (POST + b"a: b\r\n" * 200 + b"\r\n", 400),
    (POST + b"a: " + b"b" * (1 << 20), 400),
    (POST + b"Content-Length: %d\r\n\r\n" % (1 << 40), 413),
    (POST + b"Transfer-Encoding: chunked\r\n\r\n1;" + b"a" * (1 << 20), 400),
    (b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n" * 5000, 400),
    (b"GET /v2 HTTP/1.1\r\nHost: attacker.example\r\n\r\n", 421),
]


@attack
def requests(siege: Siege) -> None:
    for data, status in REQUESTS:
        with connected(siege.http) as peer:
            said = b"HTTP/1.1 %d " % status
            with suppress(ConnectionError):  # it did not read all
                peer.sendall(data)
                said = peer.recv(13)
            assert said in (b"HTTP/1.1 %d " % status, b"" if data[:3] == b"POST" else said), (data[:200], said)


@attack
def connections(siege: Siege) -> None:
    """To both ports: junk, the half of a head, a head and no body, and silence."""
    started = [b"", os.urandom(1000), POST[:50], POST + b"Content-Length: 9\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\n"]
    for address in (siege.http, siege.grpc):
        for _ in range(20):
            peer = connected(address)
            with suppress(OSError):
                peer.sendall(siege.chance.choice(started))
            if siege.chance.random() < 0.1:
                siege.kept.enter_context(peer)
            else:
                peer.close()


@attack
def messages(siege: Siege) -> None:
    """Of gRPC."""
    with grpc.insecure_channel(siege.grpc) as channel:
        for data in (os.urandom(100), b"\x0a\xff\xff\xff\xff\x0f", b"\x0a\x06double" + b"\x2a\x00" * 1000, b""):
            with suppress(grpc.RpcError):
                channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")(data, timeout=10)
