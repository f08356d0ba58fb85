"""The control thread: tells the pool what the worker does, takes its orders, and ends the process if the pool is gone.

It works while a lane is inside TensorFlow. What stops it for a moment (an import holds the GIL for a second) is
covered by the phase's time budget in the pool.
"""

import contextlib
import socket
import threading
import time
import traceback
from collections.abc import Callable

import zmq

from pool.wire.exits import Exit
from pool.wire.frames import BadFrame
from pool.wire.independence import RowsJudged
from pool.wire.load_steps import LoadStep
from pool.wire.message import Message
from pool.wire.worker_messages import EndSessions, Phase, Stop, TakeSlot, Welcome
from workers.connection import Connection
from workers.leaving import leave
from workers.progress import Progress
from workers.shared_memory import SharedMemory

__all__ = ["Control"]

SLOT_POLL_S = 0.5


class Control:
    def __init__(
        self,
        connection: Connection,
        link: socket.socket,
        shared_memory: SharedMemory,
        progress: Progress,
        heartbeat_s: float,
    ) -> None:
        """The connection and the link are this thread's from `start` on."""
        self.stop_asked = threading.Event()
        self._connection = connection
        self._link = link
        self._shared_memory = shared_memory
        self._progress = progress
        self._heartbeat_s = heartbeat_s
        self._outbox: list[Message] = []
        self._wake_reader, self._wake_writer = socket.socketpair()
        # A daemon: whatever the main thread comes to, the process ends with it.
        self._thread = threading.Thread(target=self._main, name="control", daemon=True)
        self._told: Welcome | None = None
        self._client_left: Callable[[int], None] | None = None
        self._judge: Callable[[RowsJudged], None] | None = None
        self._slot_given = threading.Event()

    def start(self) -> None:
        self._thread.start()

    def send(self, message: Message) -> None:
        """From any thread."""
        self._outbox.append(message)
        self._wake_writer.send(b"\0")

    def enter(self, phase: Phase, detail: str = "", model: str = "") -> None:
        """A new phase is told at once: its budget begins now. `model`: whose fault it is if it does not end."""
        self._progress.enter(phase, detail)
        with contextlib.suppress(OSError):  # the pool is gone, or does not read
            self._link.send(LoadStep(model, phase is not Phase.IMPORTING).pack(), socket.MSG_DONTWAIT)
        self.send(self._progress.beat(time.monotonic()))

    def await_slot(self) -> Welcome:
        """What a standby is to serve, as soon as the pool says so. The pool's end, and its STOP, end the process."""
        if not self._slot_given.is_set():
            self.enter(Phase.STANDING_BY)
        while not self._slot_given.wait(SLOT_POLL_S):
            pass
        assert self._told is not None
        return self._told

    def heed(self, client_left: Callable[[int], None], judge: Callable[[RowsJudged], None]) -> None:
        """Called in this thread with the number of a client that is gone, and with what is known of rows.

        REQUIRES that no lane serves yet.
        """
        self._client_left, self._judge = client_left, judge

    def _main(self) -> None:
        try:
            self._loop()
        except BaseException:
            traceback.print_exc()
            leave(Exit.CRASHED)

    def _loop(self) -> None:
        poller = zmq.Poller()
        for source in (self._connection.socket, self._link, self._wake_reader):
            poller.register(source, zmq.POLLIN)
        next_beat = time.monotonic()
        while True:
            now = time.monotonic()
            if now >= next_beat:
                self._connection.send(self._progress.beat(now))
                next_beat = now + self._heartbeat_s
            ready = dict(poller.poll(int(max(0.0, next_beat - now) * 1000) + 1))
            if self._link.fileno() in ready and not self._hears_pool():
                leave(Exit.POOL_GONE)
            if self._wake_reader.fileno() in ready:
                self._wake_reader.recv(4096)
            while self._outbox:
                self._connection.send(self._outbox.pop(0))
            if self._connection.socket in ready:
                self._order()

    def _hears_pool(self) -> bool:
        try:
            return self._shared_memory.receive(self._link)
        except OSError:
            return False

    def _order(self) -> None:
        envelope = self._connection.receive(0.0)
        if envelope is None:
            return
        message = envelope.message
        if isinstance(message, TakeSlot) and self._told is None:
            self._told, self._heartbeat_s = message.welcome, message.welcome.heartbeat_s
            self._slot_given.set()
            return
        if isinstance(message, EndSessions) and self._client_left is not None:
            self._client_left(message.owner)
            return
        if isinstance(message, RowsJudged) and self._judge is not None:
            self._judge(message)
            return
        if not isinstance(message, Stop):
            raise BadFrame(f"the control thread got {type(message).__name__}")
        if self._progress.phase is not Phase.SERVING:
            leave(Exit.STOPPED)  # the main thread is inside a load that nothing can interrupt; no job is lost
        self.stop_asked.set()
