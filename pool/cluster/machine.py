"""The pool of one machine, and the actor that it lives and dies with.

    Ray's worker process: Machine ──lifeline──► pool start ──► workers
                              ▲ asks for its status each second

The actor's thread undoes what Ray does to a process before it starts the pool: a new thread's niceness and blocked
signals are those of the thread that starts it.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import ray

from pool import Client
from pool.cluster.directory import folder_id
from pool.cluster.launch import Launch, pool_launch
from pool.config import Settings, load_settings
from pool.devices import discover_gpus
from pool.endpoint import default_endpoint
from pool.errors import PoolError
from pool.wire.readiness import why_not_ready

__all__ = ["Machine", "Order", "Told"]

LOOK_S = 0.5
FIRST_ANSWER_S = 120.0  # a driver may take a minute to list its GPUs, before the pool answers anything
COMMAND_S = 3600.0  # a reload waits for workers that load their models
KEPT_LINES = 20


@dataclass(frozen=True, slots=True)
class Order:
    """What a machine's pool is to be. `config`: a path that each machine has; None: the demo model.

    `host`: the machine's address for others; `gpus`: how many are reserved.
    """

    config: str | None
    name: str
    host: str
    gpus: int
    hung_after_s: float


@dataclass(frozen=True, slots=True)
class Told:
    """What an actor says of its pool. `endpoint`: its Unix socket, in the `folder` of this id. `waits_for`: or "".

    `remote`: for other machines.
    """

    pid: int
    endpoint: str
    folder: str
    remote: tuple[str, ...]
    waits_for: str


class Machine:
    """An actor that is its pool: it starts it, watches it, and is over when the pool has ended. It restarts nothing."""

    def __init__(self, order: Order) -> None:
        """Returns at once."""
        self._order = order
        self._stop = threading.Event()
        self._over = threading.Event()
        self._end = ""
        self._told: Told | None = None
        self._words: deque[str] = deque(maxlen=KEPT_LINES)
        threading.Thread(target=self._live, name="pool", daemon=True).start()

    def await_end(self) -> str:
        """Why the pool has ended."""
        self._over.wait()
        return self._end

    def tell(self) -> Told | None:
        """None before the pool was started."""
        return self._told

    def drain(self) -> str:
        """The pool finishes its jobs, at most for its `drain_timeout`. Returns when it has ended, with why."""
        self._stop.set()
        return self.await_end()

    def command(self, arguments: Sequence[str]) -> tuple[int, str, str]:
        """`pool ARGUMENTS` for this pool, on its machine: exit status, what it printed, what went wrong."""
        if self._told is None:
            return 1, "", "the pool has not been started yet\n"
        argv = [sys.executable, "-P", "-m", "pool", *arguments, "--endpoint", self._told.endpoint]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=COMMAND_S, check=False)
        return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")

    def _live(self) -> None:
        try:
            self._end = self._supervise()
        except (PoolError, OSError) as error:
            self._end = str(error)
        except Exception as error:
            self._end = f"{type(error).__name__}: {error}"
        finally:
            self._over.set()

    def _supervise(self) -> str:
        """Raises `InvalidConfig` where the file, as this machine has it, is refused."""
        config = self._order.config
        settings = Settings() if config is None else load_settings(Path(config))
        mine, theirs = socket.socketpair()
        with mine, theirs:
            launch = pool_launch(
                config=config,
                name=self._order.name,
                reserved=ray.get_runtime_context().get_accelerator_ids()["GPU"] if self._order.gpus else (),
                gpus=discover_gpus().gpus,
                environ=os.environ,
                given=_started_with(),
                lifeline=theirs.fileno(),
                python=sys.executable,
            )
            endpoint = default_endpoint(launch.env, os.getuid(), self._order.name)
            process = _started(launch, theirs.fileno())
            theirs.close()
            others = remote(settings.pool.listen, self._order.host)
            self._told = Told(process.pid, endpoint, folder_id(endpoint), others, "the pool starts")
            threading.Thread(target=self._pass_on, args=(process,), daemon=True).start()
            try:
                return self._watch(process, endpoint)
            finally:
                with suppress(OSError):
                    process.kill()
                process.wait()

    def _watch(self, process: "subprocess.Popen[bytes]", endpoint: str) -> str:
        heard, patience_s, is_told_to_stop, ray_here = time.monotonic(), FIRST_ANSWER_S, False, os.getppid()
        with Client(endpoint, connect_timeout=LOOK_S, reconnect_timeout=0.0) as client:
            while process.poll() is None:
                waits_for = waits_of(client, process.pid)
                if waits_for is not None:
                    heard, patience_s = time.monotonic(), self._order.hung_after_s
                    assert self._told is not None
                    self._told = replace(self._told, folder=folder_id(endpoint), waits_for=waits_for)
                elif time.monotonic() - heard > patience_s:
                    return f"the pool answered nothing for {patience_s:g} s, so it was killed"
                # Ray ends its actors on a machine where it has died itself, but not in a container that reaps nothing.
                is_over = self._stop.wait(0.0 if is_told_to_stop else LOOK_S) or os.getppid() != ray_here
                if is_over and not is_told_to_stop:
                    process.terminate()
                    is_told_to_stop = True
                with suppress(subprocess.TimeoutExpired):
                    process.wait(LOOK_S if is_told_to_stop else 0.0)
        return f"the pool ended with exit status {process.returncode}{self._last_words()}"

    def _pass_on(self, process: "subprocess.Popen[bytes]") -> None:
        """The pool's log goes into Ray's log of this actor."""
        assert process.stdout is not None
        for line in process.stdout:
            text = line.decode(errors="replace")
            self._words.append(text)
            sys.stderr.write(text)
            sys.stderr.flush()

    def _last_words(self) -> str:
        return f":\n{''.join(self._words)}".rstrip() if self._words else ""


def waits_of(client: Client, pid: int) -> str | None:
    """What the pool of this process waits for, or ""; None where it does not answer.

    Until it has found a pool of its name here already, and ends, that one answers in its place.
    """
    try:
        status = client.status()
    except PoolError:
        return None
    return why_not_ready(status, None) if status.pid == pid else None


def _started(launch: Launch, lifeline: int) -> "subprocess.Popen[bytes]":
    with suppress(PermissionError):  # only root may; the page `cluster` says what others do
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 0)
    blocked = signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    try:
        return subprocess.Popen(
            launch.argv,
            env=launch.env,
            cwd="/",  # no config.toml of Ray's folder is meant
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(lifeline,),
            start_new_session=True,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _started_with() -> dict[str, str]:
    """The environment that Ray started this process with, which what it sets afterwards does not change."""
    entries = Path("/proc/self/environ").read_bytes().split(b"\0")
    pairs = (entry.partition(b"=") for entry in entries if entry)
    return {os.fsdecode(key): os.fsdecode(value) for key, _, value in pairs}


def remote(listen: Sequence[str], host: str) -> tuple[str, ...]:
    """What other machines reach of what a pool listens on; `host` stands for all addresses of its machine."""
    found = []
    for endpoint in listen:
        place, _, port = endpoint.removeprefix("tcp://").rpartition(":")
        if place in ("*", "0.0.0.0", "[::]"):
            place = f"[{host}]" if ":" in host else host
        if not place.startswith("127.") and place != "[::1]":
            found.append(f"tcp://{place}:{port}")
    return tuple(found)
