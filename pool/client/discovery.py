"""Where the pools of a Ray cluster are, as a process of our own tells.

Ray ends a process that has connected to it a minute after the cluster's head is lost, and its library takes a second to
import. So a child connects. It may end: the last pools stay valid, and the next child brings what is new.
"""

import contextlib
import json
import logging
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import IO

from pool.endpoint import CLUSTER_SCHEME as SCHEME
from pool.errors import InvalidInput, PoolUnreachable

__all__ = ["SCHEME", "Discovery", "address_in"]

log = logging.getLogger("pool.client")

AUTO = "auto"
_ADDRESS = re.compile(rf"{AUTO}|[^\s/]+:\d{{1,5}}", re.ASCII)
FIRST_S = 60.0  # on a busy machine Ray takes long to import and to connect
BACKOFF_S = (1.0, 30.0)  # the first pause after a child's end, and the longest
END_S = 5.0


def address_in(*endpoints: str | None) -> str | None:
    """The address of a cluster, if one is given. Raises `InvalidInput` for one besides others, and for a wrong one."""
    found = [each for each in endpoints if each is not None and each.startswith(SCHEME)]
    if not found:
        return None
    if len(endpoints) > 1:
        raise InvalidInput(f"{found[0]!r:.200} stands for all pools of a cluster; give it alone")
    address = found[0].removeprefix(SCHEME)
    if _ADDRESS.fullmatch(address) is None:
        raise InvalidInput(f"{found[0]!r:.200} is no cluster; write {SCHEME}HOST:PORT or {SCHEME}{AUTO}")
    return address


def _pools_in(line: bytes) -> dict[str, str]:
    """Endpoints by names; none in a line that is something of Ray's own."""
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    right = isinstance(found, dict) and all(isinstance(endpoint, str) for endpoint in found.values())
    return found if right else {}


def _own_cluster() -> str | None:
    """Of a process that belongs to Ray, such as a task: a machine may have nodes of several clusters."""
    ray = sys.modules.get("ray")  # nothing here imports it
    if ray is None or not ray.is_initialized():
        return None
    return str(ray.get_runtime_context().gcs_address)


class Discovery:
    """Follows a cluster from its making until `close` or `release`. Safe for several threads."""

    def __init__(self, address: str, on_change: Callable[[Mapping[str, str]], None] = lambda _: None) -> None:
        """`address`: "HOST:PORT" of Ray's head, or "auto".

        `on_change` is called with the new pools, in a thread. REQUIRES that it raises nothing.
        """
        self._address = _own_cluster() or address if address == AUTO else address
        self._on_change = on_change
        self._child: subprocess.Popen[bytes] | None = None
        self.pools: Mapping[str, str] = {}
        """Endpoints by the names of the pools, this machine's first. Those of before, where none are left."""
        self._begin()

    def _begin(self) -> None:
        self._words = "no pool yet"
        self._known = threading.Event()
        self._closed = threading.Event()
        self._lock = threading.RLock()  # a finalizer may come while it is held
        threading.Thread(target=self._follow, name="pool-discovery", daemon=True).start()

    def wait(self, timeout_s: float = FIRST_S) -> Mapping[str, str]:
        """The pools, once there is one. Raises `PoolUnreachable` where there is none in this time."""
        if not self._known.wait(timeout_s):
            raise PoolUnreachable(f"{SCHEME}{self._address}: no pool was found within {timeout_s:g} s: {self._words}")
        return self.pools

    def release(self) -> None:
        """The child ends soon. Does not wait."""
        with self._lock:
            self._closed.set()
            if self._child is not None and self._child.stdin is not None:
                with contextlib.suppress(OSError):
                    self._child.stdin.close()

    def close(self) -> None:
        """The child has ended. `on_change` may be called once more meanwhile."""
        self.release()
        if self._child is not None:
            try:
                self._child.wait(END_S)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()

    def after_fork(self) -> None:
        """In a forked child, which has a copy of all: the process is the parent's, so another one is started."""
        child, self._child = self._child, None
        if child is not None:
            nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            for pipe in (child.stdin, child.stdout, child.stderr):
                with contextlib.suppress(ValueError, OSError):
                    if pipe is not None:  # a thread that is no more may hold its lock
                        os.dup2(nowhere, pipe.fileno(), inheritable=False)
            os.close(nowhere)
            child.returncode = 0  # nobody waits for it here
        if not self._closed.is_set():
            self._begin()

    def _follow(self) -> None:
        first_s, longest_s = BACKOFF_S
        pause_s = first_s
        while True:
            began = time.monotonic()
            with self._lock:
                if self._closed.is_set():
                    return
                self._child = child = self._spawn()
            self._hear(child)
            if time.monotonic() - began > longest_s:
                pause_s = first_s
            if self._closed.wait(pause_s):
                return
            pause_s = min(longest_s, pause_s * 2)

    def _spawn(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "pool.cluster", self._address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,  # Ctrl-C is for the program
        )

    def _hear(self, child: "subprocess.Popen[bytes]") -> None:
        """Until the child ends."""
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        threading.Thread(target=self._listen, args=(child.stderr,), daemon=True).start()
        with child.stdin, child.stdout:
            for line in child.stdout:
                if self._closed.is_set():
                    break
                if found := _pools_in(line):  # none are left: those of before may come back
                    self._tell(found)
        child.wait()
        if not self._closed.is_set():
            log.warning("%s%s: the pools are not followed for a while: %s", SCHEME, self._address, self._words)

    def _tell(self, found: Mapping[str, str]) -> None:
        self.pools = found
        self._known.set()
        self._on_change(found)

    def _listen(self, said: IO[bytes]) -> None:
        """Its last line is the reason of its end."""
        with said:
            for line in said:
                self._words = line.decode(errors="replace").strip() or self._words
