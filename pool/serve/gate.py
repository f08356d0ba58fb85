"""A ROUTER's listening socket, which can be shut: at the limit of descriptors libzmq's own aborts the process.

    open   the number that libzmq accepts at is the listener
    shut   it is a socket where nobody can knock (`dup2`); who knocks at the listener is let in and shown out here

libzmq knows no way to accept less but to unbind, and that ends the connections that it has accepted. It tells of each
one it accepts, and blocks when it has told of a thousand that nobody has heard of: no more come in between two looks.
"""

import contextlib
import logging
import os
import socket
import struct
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import zmq

from pool.logs import about
from pool.loop import Loop, descriptors
from pool.serve.connections import Connections
from pool.serve.refusals import count

__all__ = ["Gate", "Gates", "local", "over_tcp", "uid_of"]

log = logging.getLogger("pool.gate")

BACKLOG = 100
COMES_AND_GOES = int(zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
NEWS = struct.Struct("=Hi")  # an event, and here its descriptor
LOOK_S = 0.1  # how often a shut one looks whether it can open
SHOWN_OUT_A_TURN = 64
REFUSAL = "a connection, because file descriptors run out"
TOO_MANY = "a connection, because there are as many over TCP as there may be"


class Gate:
    """REQUIRES that it is closed before its ROUTER."""

    def __init__(
        self,
        router: "zmq.Socket[bytes]",
        listener: socket.socket,
        endpoint: str,
        refused: "Counter[str]",
        share: float = 1.0,
        connections: Connections | None = None,
    ) -> None:
        """Binds the ROUTER to the listener, which is bound to the endpoint and is the gate's from now on.

        Shut while fewer descriptors are left than `share` of the pool's reserve, or `connections` are full, which hear
        of each that comes and goes. Raises `OSError`.
        """
        self._router = router
        self._listener = listener
        self._share = share
        self._connections = connections
        self._refused = refused
        self._endpoint = endpoint
        self.is_shut = False
        self._has_told = False  # that there are too many connections
        self._is_known = False  # libzmq waits at the number. Before that, what it finds there must be the listener
        listener.setblocking(False)
        self._nowhere = _unreachable()
        self._number = os.dup(listener.fileno())
        router.set(zmq.USE_FD, self._number)
        try:
            router.bind(endpoint)
        except zmq.ZMQError as error:
            os.close(self._number)
            self._nowhere.close()
            raise OSError(error.errno, error.strerror) from None
        heard = f"inproc://accepted-{id(self)}"
        router.monitor(heard, zmq.EVENT_ACCEPTED if connections is None else COMES_AND_GOES)
        self.monitor = router.context.socket(zmq.PAIR)
        self.monitor.rcvhwm = 1
        self.monitor.connect(heard)
        while self._heard():  # only from then on libzmq tells at the descriptor of what comes next
            pass

    @property
    def fd(self) -> int:
        """Of who knocks; to be waited for while it is shut."""
        return self._listener.fileno()

    @property
    def news_fd(self) -> int:
        """Readable when the monitor may have news, until `look` has read them."""
        return int(self.monitor.fd)

    def look(self) -> None:
        """When the monitor has news, or somebody knocks, and now and then while it is shut."""
        self.hear()
        left, spare = descriptors.left(), int(descriptors.reserve() * self._share)
        is_full = self._connections is not None and self._connections.is_full
        if not self.is_shut and is_full and self._is_known:
            self._shut()
            if not self._has_told:  # or whoever floods it would flood the log
                self._has_told = True
                extra = about("connections_refused", endpoint=self._endpoint, left=left)
                log.warning("%s accepts no connection: there are as many as there may be", self._endpoint, extra=extra)
        elif not self.is_shut and left < spare and self._is_known:
            self._shut()
            extra = about("connections_refused", endpoint=self._endpoint, left=left)
            said = "only %d file descriptors are left: %s accepts no connection until %d are free; raise `ulimit -n`"
            log.warning(said, left, self._endpoint, spare, extra=extra)
        elif self.is_shut and left >= spare and not is_full:
            self._open()
        if self.is_shut:
            self._show_out(TOO_MANY if is_full else REFUSAL)

    def hear(self) -> None:
        """All that the monitor has to tell."""
        while self._heard():
            pass

    def close(self) -> None:
        """Nobody is let in any more. What is connected stays, until the ROUTER closes."""
        if self.monitor.closed:
            return
        if self._is_known:
            self._shut()
        while self._heard():  # or libzmq could wait for that while it is to stop telling
            pass
        self._router.disable_monitor()
        self.monitor.close(linger=0)
        self._open()  # libzmq takes it out of its own epoll, where it is the listener
        self._listener.close()
        self._nowhere.close()

    def _shut(self) -> None:
        self.is_shut = True
        os.dup2(self._nowhere.fileno(), self._number, inheritable=False)

    def _open(self) -> None:
        self.is_shut = False
        os.dup2(self._listener.fileno(), self._number, inheritable=False)

    def _heard(self) -> bool:
        try:
            (news, _) = self.monitor.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return False
        self._is_known = True
        if self._connections is not None:
            event, fd = NEWS.unpack(news)
            if event == zmq.EVENT_ACCEPTED:
                self._connections.accepted(fd)
            elif event == zmq.EVENT_DISCONNECTED:
                self._connections.disconnected(fd)
        return True

    def _show_out(self, why: str) -> None:
        with contextlib.suppress(OSError):  # nobody knocks any more, or not even that descriptor is left
            for _ in range(SHOWN_OUT_A_TURN):
                self._listener.accept()[0].close()
                count(self._refused, why)


class Gates:
    """All of the pool's, and the loop that visits them where a connection came, or one of them is shut."""

    def __init__(self, gates: Sequence[Gate], loop: Loop) -> None:
        self._gates = gates
        self._loop = loop
        self._alarm = loop.alarm(self._look)
        for gate in gates:
            loop.register(gate.news_fd, self._look)

    def _look(self) -> None:
        """At all of them: what one let in counts for each."""
        for gate in self._gates:
            gate.look()
            if not gate.is_shut:
                self._loop.unregister(gate.fd)
            elif not self._loop.is_registered(gate.fd):
                self._loop.register(gate.fd, self._look)
        if any(gate.is_shut for gate in self._gates):
            self._alarm.by(time.monotonic() + LOOK_S)


def local(path: Path) -> socket.socket:
    """A listener for this user alone. The caller holds the endpoint's lock, so a file there is stale.

    Raises `OSError`.
    """
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    before = os.umask(0o177)
    try:
        listener.bind(os.fspath(path))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(before)
    return listener


def uid_of(frame: zmq.Frame) -> int | None:
    """Whose process it was that connected, as the kernel says of a Unix socket; None for any other.

    libzmq writes `HOST:UID:GID:PID`.
    """
    try:
        uid = str(frame.get("Peer-Address")).split(":")[-3]
    except (zmq.ZMQError, IndexError):
        return None
    return int(uid) if uid.isdecimal() else None


def over_tcp(endpoint: str) -> tuple[socket.socket, str]:
    """A TCP listener, and where it is: the port may have been left open. REQUIRES a number as the address.

    Raises `OSError`.
    """
    address, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    family = socket.AF_INET6 if address.startswith("[") else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address.strip("[]"), 0 if port == "*" else int(port)))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener, f"tcp://{address}:{listener.getsockname()[1]}"


def _unreachable() -> socket.socket:
    """It listens, and nobody can find it: `accept` there says that nobody has come."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    listener.setblocking(False)
    try:
        with tempfile.TemporaryDirectory(prefix="pool-") as folder:
            listener.bind(os.path.join(folder, "nowhere"))
            listener.listen(1)
    except OSError:
        listener.close()
        raise
    return listener
