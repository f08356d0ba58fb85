"""sd_notify: what the pool tells the service manager that started it.

    environ ─► Notifier ─► "READY=1\\nSTATUS=8 of 8 slots serve" ─► datagram to $NOTIFY_SOCKET

The protocol is a line an assignment, and the manager never answers; without a manager every call does nothing.
"""

import logging
import math
import os
import socket
from collections.abc import Mapping

from pool.logs import about

__all__ = ["Notifier"]

log = logging.getLogger("pool.systemd")

STATUS_BYTES = 1024  # the manager throws away a message of more than 4096, the whole of it
LONGEST_EXTENSION_S = 7 * 86_400.0
USEC_DIGITS = 20  # of 64 bits
ALIVE_PER_WATCHDOG = 3  # so that two may be lost


class Notifier:
    """Tells the manager how the pool is. Nothing here blocks or raises, or touches the environment.

    A message that cannot be sent now is dropped, but for the state in it (READY, RELOADING, STOPPING): the manager
    acts on that, so it goes out with whatever is sent next. Used from one thread.
    """

    def __init__(self, address: str, watchdog_s: float | None) -> None:
        """`address`: a path, or `@` and an abstract name; any other, such as "", is no manager."""
        self._address = _sockaddr(address)
        self._socket: socket.socket | None = None
        self._watchdog_s = watchdog_s
        self._alive_from = -math.inf
        self._status = ""
        self._owed = ""
        self._complained = False
        if self._address is not None:
            try:
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
                self._socket.setblocking(False)
            except OSError as error:
                self._complain(error)

    @classmethod
    def from_environ(cls, environ: Mapping[str, str], pid: int) -> "Notifier":
        """From NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID; a watchdog that is meant for another pid is not ours."""
        usec = environ.get("WATCHDOG_USEC", "")
        meant_for = environ.get("WATCHDOG_PID", str(pid))
        interval_usec = int(usec) if usec.isascii() and usec.isdigit() and len(usec) <= USEC_DIGITS else 0
        watched = interval_usec > 0 and meant_for == str(pid)
        return cls(environ.get("NOTIFY_SOCKET", ""), interval_usec / 1e6 if watched else None)

    @classmethod
    def of_nobody(cls) -> "Notifier":
        """Where no manager is to be told anything."""
        return cls("", None)

    def ready(self, status: str) -> None:
        """The pool serves, for the first time or again after `reloading`."""
        self._tell("READY=1", status)

    def status(self, text: str) -> None:
        """One line for `systemctl status`; sent only when it is another than the last."""
        line = _one_line(text)
        if line != self._status and self._send([f"STATUS={line}"]):
            self._status = line

    def stopping(self, status: str) -> None:
        """The pool has begun to stop."""
        self._tell("STOPPING=1", status)

    def reloading(self, status: str, monotonic_usec: int) -> None:
        """The pool reads its configuration again; `monotonic_usec` is CLOCK_MONOTONIC when it began to."""
        self._tell(f"RELOADING=1\nMONOTONIC_USEC={monotonic_usec:d}", status)

    def extend(self, seconds: float) -> None:
        """The start, the stop or the runtime may take so long from now, whatever the unit's time-out says."""
        bounded = min(max(0.0, seconds), LONGEST_EXTENSION_S)
        self._send([f"EXTEND_TIMEOUT_USEC={math.ceil(bounded * 1e6)}"])

    def alive(self, now: float) -> None:
        """To be called whenever the loop comes round; sends at most every third of the watchdog's interval."""
        if self._watchdog_s is not None and now >= self._alive_from:
            # A dropped one counts: its replacements are in time, and a full socket is not to keep the loop busy.
            self._alive_from = now + self._watchdog_s / ALIVE_PER_WATCHDOG
            self._send(["WATCHDOG=1"])

    def next_alive(self, now: float) -> float | None:
        """When `alive` is to be called next, never before `now`; None where nobody watches."""
        return None if self._watchdog_s is None or self._socket is None else max(now, self._alive_from)

    def close(self) -> None:
        """From here on every call does nothing."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _tell(self, state: str, status: str) -> None:
        line = _one_line(status)
        self._owed = state
        if self._send([f"STATUS={line}"]):
            self._status = line

    def _send(self, assignments: list[str]) -> bool:
        if self._socket is None or self._address is None:
            return False
        owed = [self._owed] if self._owed else []
        try:
            # Unconnected: the manager may have made its socket anew since the last time.
            self._socket.sendto("\n".join(owed + assignments).encode(), self._address)
        except OSError as error:
            self._complain(error)
            return False
        self._owed = ""
        return True

    def _complain(self, error: OSError) -> None:
        if not self._complained:
            self._complained = True
            why = error.strerror or str(error)
            log.debug("cannot notify the service manager: %s", why, extra=about("manager_not_told", reason=why))


def _sockaddr(address: str) -> bytes | None:
    if address.startswith("/"):
        return os.fsencode(address)
    return b"\0" + os.fsencode(address[1:]) if address.startswith("@") else None


def _one_line(text: str) -> str:
    """Printable, and short enough; never cut within a character."""
    line = "".join(char if char.isprintable() else " " for char in text)
    return line.encode(errors="replace")[:STATUS_BYTES].decode(errors="ignore")
