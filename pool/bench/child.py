"""Processes of the benchmark's own: orders and answers go through a socket, their standard input, in msgpack."""

import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from queue import Empty, SimpleQueue
from typing import Any

import msgpack

from pool.bench.point import NotMeasured
from pool.wire.codec import packed

__all__ = ["END_S", "Child", "Line", "Told"]

END_S = 5.0

Told = SimpleQueue[dict[str, Any]]


class Line:
    """One end of the socket. A thread puts into `told` what comes, and at its end what `end` gives."""

    def __init__(self, pipe: socket.socket, told: Told, end: Callable[[], dict[str, Any]] = dict) -> None:
        self._pipe = pipe
        self.thread = threading.Thread(target=self._hear, args=(told, end), daemon=True)
        self.thread.start()

    def tell(self, what: Mapping[str, Any]) -> None:
        """Returns although nobody hears it any more: the queue is told of that."""
        with suppress(OSError):
            self._pipe.sendall(packed(what))

    def _hear(self, told: Told, end: Callable[[], dict[str, Any]]) -> None:
        # Unbuffered: a buffered one waits for more than a message.
        with suppress(OSError), self._pipe.makefile("rb", buffering=0) as stream:
            for message in msgpack.Unpacker(stream, max_buffer_size=0):
                told.put(message)
        told.put(end())


class Child(ExitStack):
    """`python -m` with these arguments, called `who` in errors. The end of the block kills it."""

    def __init__(self, who: str, argv: Sequence[str], told: Told, env: dict[str, str] | None = None) -> None:
        super().__init__()
        self._who = who
        self._told = told
        self._printed = self.enter_context(tempfile.TemporaryFile())  # noqa: SIM115  # this is its block
        ours, theirs = socket.socketpair()
        self.enter_context(ours)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", *argv],
                stdin=theirs.fileno(),
                stdout=self._printed,
                stderr=self._printed,
                env=env,
                process_group=0,  # Ctrl-C is this process's to answer
            )
        line = Line(ours, told, self._death)
        self.tell = line.tell
        self.callback(line.thread.join, END_S)
        self.callback(self._process.kill)

    def ask(self, order: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """What it answers. Raises `NotMeasured`."""
        self.tell(order)
        try:
            answer = self._told.get(timeout=timeout_s)
        except Empty:
            raise NotMeasured(f"{self._who} did not answer within {timeout_s:g} s") from None
        if "failed" in answer:
            raise NotMeasured(answer["failed"])
        return answer

    def _death(self) -> dict[str, Any]:
        """How it died, and the last line that it printed."""
        status = self._process.wait(END_S)
        self._printed.seek(0)
        last = self._printed.read().decode(errors="replace").rstrip().rpartition("\n")[2].strip()
        how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        return {"failed": f"{self._who} died ({how}){last and f': {last}'}"}
