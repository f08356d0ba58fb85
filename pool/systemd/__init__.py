"""The pool as a service of systemd: the text of its unit, and what a running pool tells the manager (sd_notify)."""

import math
import re
import socket
from collections.abc import Mapping
from contextlib import suppress

from pool.errors import InvalidConfig

# The start has no time-out, since [health] bounds it; status 2 is a refused configuration. XLA and the CUDA driver
# compile kernels into memory, so MemoryDenyWriteExecute is not set.
SERVICE = """\
# Of a user: write this to ~/.config/systemd/user/pool.service, and run `systemctl --user enable --now pool`.
# Of the machine: write it to /etc/systemd/system/pool.service, and run `systemctl enable --now pool`.
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
WantedBy=default.target"""
# A user's manager lacks the privileges for these. Without a cache each start on a new GPU takes minutes. PrivateDevices
# is not set, since it would hide the GPUs.
SYSTEM = """\
User={user}
SupplementaryGroups={group}
RuntimeDirectory=pool
RuntimeDirectoryMode={mode}
StateDirectory=pool
CacheDirectory=pool
Environment=CUDA_CACHE_PATH=%C/pool
CapabilityBoundingSet=
ProtectSystem=full
ProtectHome=read-only
"""


def unit(python: str, config: str | None, drain_s: float, user: str | None, group: str | None) -> str:
    """A unit that runs `python -P -m pool start`, of the machine if it names a `user`. Both paths are absolute.

    `group`: whose members may connect to the machine's. Raises `InvalidConfig` for what cannot stand in a unit.
    """
    for text in filter(None, (python, config, user, group)):
        if not re.fullmatch(r"[\w/.+@:-]+", text):  # systemd expands "%" and "$", and a line break begins a line
            raise InvalidConfig(f"{text!r} cannot stand in a systemd unit; use letters, digits and any of _-+.@")
    command = f"{python} -P -m pool start" + (f" --config {config}" if config else "")
    system = SYSTEM.format(user=user, group=group or "", mode="0711" if group else "0700") if user else ""
    return SERVICE.format(command=command, stop_s=int(drain_s) + 15, system=system)  # 15 s for the workers' ends


class Notifier:
    """Nothing here blocks or raises; without a manager nothing happens."""

    def __init__(self, environ: Mapping[str, str], pid: int) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        interval_us = environ.get("WATCHDOG_USEC", "") if environ.get("WATCHDOG_PID") in (None, str(pid)) else ""
        self._every_s = int(interval_us) / 3e6 if interval_us.isdecimal() else math.inf  # two may be lost
        self._owed = ""
        self.next_alive = math.inf if self._every_s == math.inf else 0.0

    def tell(self, status: str, state: str = "") -> None:
        """A line for `systemctl status`. `state` ("READY=1", "STOPPING=1") goes out with the next if this cannot."""
        self._owed = f"{state}\n" if state else self._owed
        self._send(f"STATUS={status}")

    def alive(self, now: float) -> None:
        """To be called when the loop comes round."""
        if now >= self.next_alive:
            self.next_alive = now + self._every_s
            self._send("WATCHDOG=1")

    def _send(self, assignment: str) -> None:
        kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        with suppress(OSError), socket.socket(socket.AF_UNIX, kind) as manager:
            manager.sendto(f"{self._owed}{assignment}".encode(), self._address)
            self._owed = ""
