"""A client that speaks the wire by hand, for what no correct client says, and for counting calls."""

import fcntl
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import zmq

from pool.wire.bodies import HEAD, PART, SHARED, Body, Kind, bodies, failure_of, pack, plain
from pool.wire.link import SEALS, Link
from pool.wire.specs import job_spec, parse_answer, unpack
from pool.wire.tensors import Layout, describe, encode

FLOOD = """
import socket, sys
link, data = socket.socket(fileno=int(sys.argv[1])), bytes.fromhex(sys.argv[2])
link.setblocking(True)
link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
while True:
    link.send(data)
"""


def memory(size: int = 1 << 20, seals: int = SEALS) -> int:
    descriptor = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


def lingering() -> tuple[int, socket.socket]:
    """A descriptor whose last close takes a minute, or until the other socket is closed."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        sender = socket.create_connection(listening.getsockname())
        reader, _ = listening.accept()
    sender.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            sender.send(bytes(1 << 20))
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 60))
    return sender.detach(), reader


def job(number: int, model: str, *, seconds: float = 10.0, **arrays: Any) -> bytes:
    named = {name: np.asarray(arrays[name]) for name in sorted(arrays)}
    spec = job_spec(model, "", None, describe(named))
    data = b"".join(encode([*named.values()]))
    return HEAD.pack(Kind.JOB, 0, 0, 0, len(spec), len(data), number, seconds, 0.0) + spec + data


def shared_job(number: int, model: str, part: tuple[int, int, int, int, int], x: Any) -> bytes:
    spec = job_spec(model, "", None, describe({"x": x}))
    return HEAD.pack(Kind.JOB, SHARED, 0, 0, len(spec), 0, number, 10.0, 0.0) + spec + PART.pack(*part)


def flood(link: socket.socket, data: bytes) -> "subprocess.Popen[bytes]":
    """A process that sends this without end."""
    command = [sys.executable, "-c", FLOOD, str(link.fileno()), data.hex()]
    return subprocess.Popen(command, pass_fds=[link.fileno()], stderr=subprocess.DEVNULL)


class RawSocket:
    def __init__(self, endpoint: str, token: bytes, context: "zmq.Context[Any]") -> None:
        self.zmq = context.socket(zmq.DEALER)
        self.zmq.setsockopt(zmq.RCVTIMEO, 10_000)
        self.zmq.setsockopt(zmq.SNDTIMEO, 10_000)
        self.zmq.setsockopt(zmq.LINGER, 0)
        self.zmq.setsockopt(zmq.RCVHWM, 4)
        self.zmq.setsockopt(zmq.RECONNECT_IVL, -1)
        self.zmq.connect(endpoint)
        with suppress(zmq.Again):  # the pool cuts the connection of a process without a link
            self.zmq.send(plain(Kind.JOIN, data=token), zmq.NOBLOCK)

    def receive(self) -> Iterator[Body]:
        """The bodies of one message."""
        for frame in self.zmq.recv_multipart():
            yield from bodies(frame)


class RawClient:
    def __init__(self, endpoint: str) -> None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.connect(endpoint.removeprefix("ipc://") + ".link")
        connection.settimeout(10)
        self.link = Link(connection)
        said = self.link.receive()
        assert said is not None, "the pool refused"
        self.welcome = said[0]
        self.context: zmq.Context[Any] = zmq.Context()
        self.socket = RawSocket(endpoint, self.welcome["token"], self.context)

    def send(self, *frames: bytes) -> None:
        self.socket.zmq.send_multipart(frames)

    def ends(self, count: int) -> dict[int, Any]:
        """Of so many jobs: the outputs, or the error's name."""
        found: dict[int, Any] = {}
        while len(found) < count:
            for body in self.socket.receive():
                data = body.whole[len(body.whole) - (body.ends - body.begins) :]
                if body.kind == Kind.ANSWER and not body.flags & SHARED:
                    found[body.job] = Layout(parse_answer(body.spec)[3]).views(data, 0, len(data))
                elif body.kind == Kind.ANSWER:
                    found[body.job] = PART.unpack(data)
                elif body.kind == Kind.FAILURE:
                    found[body.job] = failure_of(data)[0]
                elif body.kind == Kind.REPLY:
                    found[body.job] = unpack(data)
        return found

    def ask(self, name: str, **arguments: Any) -> Any:
        data = pack([name, arguments])
        self.send(HEAD.pack(Kind.ASK, 0, 0, 0, 0, len(data), 1 << 40, 10.0, 0.0) + data)
        return self.ends(1)[1 << 40]

    def close(self) -> None:
        self.socket.zmq.close()
        self.context.term()
        self.link.socket.close()
