"""A process of the benchmark's own, that takes orders and answers them, both in msgpack."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from queue import SimpleQueue
from typing import Any

import msgpack

from pool.wire.codec import packed

__all__ = ["Child", "Told"]

END_S = 5.0
TAIL_BYTES = 4096

# The number of the process and what it answered; None at its end.
Told = SimpleQueue[tuple[int, dict[str, Any] | None]]


class Child(ExitStack):
    """`python -m` with these arguments. The end of the block kills it."""

    def __init__(self, argv: Sequence[str], told: Told, number: int = 0, env: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self._printed = self.enter_context(tempfile.TemporaryFile())  # noqa: SIM115  # this is its block
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._printed,
            env=env,
            process_group=0,  # Ctrl-C is this process's to answer
        )
        self.callback(self._end)
        threading.Thread(target=self._read, args=(told, number), daemon=True).start()

    def tell(self, order: Mapping[str, Any]) -> None:
        """Returns although the process has died: the queue hears of that."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.write(packed(order))
            self._process.stdin.flush()

    def death(self) -> tuple[str, str]:
        """How it died, and the last line that it printed. Only once the queue has heard of its end."""
        status = self._process.wait(END_S)
        self._printed.seek(max(0, os.fstat(self._printed.fileno()).st_size - TAIL_BYTES))
        lines = self._printed.read().decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return signal.Signals(-status).name if status < 0 else f"exit status {status}", last

    def _end(self) -> None:
        self._process.kill()
        self._process.wait(END_S)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    def _read(self, told: Told, number: int) -> None:
        assert self._process.stdout is not None
        with (
            suppress(OSError, ValueError, msgpack.UnpackException),
            # Unbuffered: a buffered one waits for more than a message.
            open(self._process.stdout.fileno(), "rb", buffering=0, closefd=False) as pipe,
        ):
            for message in msgpack.Unpacker(pipe, max_buffer_size=0):
                told.put((number, message))
        told.put((number, None))
