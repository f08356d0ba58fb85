"""The pool as a service of systemd: the text of its unit, and what a running pool tells the manager (sd_notify)."""

import math
import os
import socket
from collections.abc import Mapping
from contextlib import suppress

from pool.errors import InvalidConfig

__all__ = ["Notifier", "unit"]

# The start has no time-out, since [health] bounds it; status 2 is a refused configuration. XLA and the CUDA driver
# compile kernels into memory, so MemoryDenyWriteExecute is not set.
SERVICE = """\
[Unit]
Description=TensorFlow worker pool
StartLimitIntervalSec=300
StartLimitBurst=3

[Service]
Type=notify
ExecStart={command}
TimeoutStartSec=infinity
TimeoutStopSec={stop_s}
KillMode=mixed
Restart=on-failure
RestartSec=5
RestartPreventExitStatus=2
WatchdogSec=30
OOMPolicy=continue
LogRateLimitIntervalSec=0
UMask=0077
NoNewPrivileges=yes
{system}
[Install]
WantedBy={target}
"""
# A user's manager lacks the privileges for these. Without a cache each start on a new GPU takes minutes. PrivateDevices
# is not set, since it would hide the GPUs.
SYSTEM = """\
{user}RuntimeDirectory=pool
RuntimeDirectoryMode={mode}
StateDirectory=pool
CacheDirectory=pool
Environment=CUDA_CACHE_PATH=%C/pool
CapabilityBoundingSet=
ProtectSystem=full
ProtectHome=read-only
"""


def unit(python: str, config: str | None, drain_s: float, user: str | None, group: str | None, is_system: bool) -> str:
    """A unit that runs `python -P -m pool start`, of the system or of a user. Both paths are absolute.

    `group`: whose members may connect to the system's. Raises `InvalidConfig` for a text that cannot stand in a unit.
    """
    if set(python) & set("\"'\\$"):  # systemd expands nothing in the first word of a command
        raise InvalidConfig(f"systemd cannot run {python!r}; install the pool where no path has quotes, '\\' or '$'")
    command = f"{_word(python)} -P -m pool start" + (f" --config {_word(config).replace('$', '$$')}" if config else "")
    owner = (f"User={_word(user)}\n" if user else "") + (f"SupplementaryGroups={_word(group)}\n" if group else "")
    system = SYSTEM.format(user=owner, mode="0711" if group else "0700") if is_system else ""
    target = "multi-user.target" if is_system else "default.target"
    stop_s = int(drain_s) + 15  # for the workers' ends after the drain
    return SERVICE.format(command=command, stop_s=stop_s, system=system, target=target)


def _word(text: str) -> str:
    """One word of a line, with nothing for the manager to expand but `$`."""
    if not text.isprintable():  # a line break would begin a line of its own
        raise InvalidConfig(f"{text!r} cannot stand in a systemd unit; rename it")
    escaped = text.replace("%", "%%").replace("\\", "\\\\").replace('"', '\\"')
    return escaped if escaped == text and not set(text) & set(" ';#") else f'"{escaped}"'


class Notifier:
    """Nothing here blocks or raises; without a manager nothing happens."""

    def __init__(self, environ: Mapping[str, str], pid: int) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        self._address = os.fsencode(f"\0{address[1:]}" if address.startswith("@") else address)
        interval_us = environ.get("WATCHDOG_USEC", "") if environ.get("WATCHDOG_PID") in (None, str(pid)) else ""
        self._every_s = int(interval_us) / 3e6 if interval_us.isdecimal() else math.inf  # two may be lost
        self._owed = self._status = ""
        self.next_alive = math.inf if self._every_s == math.inf else 0.0

    def tell(self, status: str, state: str = "") -> None:
        """A line for `systemctl status`. `state` ("READY=1", "STOPPING=1") goes out with the next if this cannot."""
        line = "".join(char if char.isprintable() else " " for char in status[:300])
        self._owed = state or self._owed
        if line != self._status or state:
            self._status = line
            self._send(f"STATUS={line}")

    def alive(self, now: float) -> None:
        """To be called when the loop comes round."""
        if now >= self.next_alive:
            self.next_alive = now + self._every_s
            self._send("WATCHDOG=1")

    def _send(self, assignment: str) -> None:
        kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        with suppress(OSError), socket.socket(socket.AF_UNIX, kind) as manager:
            manager.sendto(f"{self._owed}\n{assignment}".lstrip().encode(errors="replace"), self._address)
            self._owed = ""
