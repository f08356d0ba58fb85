"""Signals for a loop that waits for descriptors."""

import os
import signal
import socket
from collections import deque
from types import FrameType

__all__ = ["SignalPipe", "has_terminal"]

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def has_terminal() -> bool:
    """Whether this process belongs to a terminal, which says by SIGHUP that it was closed."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


class SignalPipe:
    """Signals as a readable descriptor. The handlers only queue; what was there before comes back at the end."""

    def __init__(self, queue: deque[str]) -> None:
        self._queue = queue
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self.fd = self._reader.fileno()

    def __enter__(self) -> "SignalPipe":
        # Who started the pool may have had it ignore some (nohup, a shell's background job).
        heeded = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        self._before = {number: signal.signal(number, self._on_signal) for number in heeded}
        self._wakeup = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._reader.close()
        self._writer.close()

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._queue.append(signal.Signals(number).name)

    def drain(self) -> None:
        while True:
            try:
                if not self._reader.recv(4096):
                    return
            except BlockingIOError:
                return
