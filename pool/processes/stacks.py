"""Where a worker hangs or crashed: the stacks that it writes itself, and what the kernel says of its threads.

The stacks go into a file in memory that has no name and that the worker inherits. Its size is fixed and sealed, so a
worker cannot fill the machine's memory with it; writing to it never waits; and it outlives the worker.
"""

import fcntl
import os
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass

from pool.wire.stacks import STACKS_SIGNAL

__all__ = ["LOOK_S", "STACKS_BYTES", "Stacks", "Trace", "threads_of"]

STACKS_BYTES = 128 << 10  # a hundred threads with a dozen frames each
TAKE_S = 0.5  # who can answer does so in milliseconds, but on a machine that has more to run than it has cores
QUIET_S = 0.1  # no byte more in this time: it has written all of it
LOOK_S = 0.03

MOST_THREADS = 512  # that the kernel is asked about: an unbounded number would hold up the pool
MOST_LINES = 40

# The letters of /proc/PID/stat, of which those that explain a hang matter; see proc(5).
_STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "in uninterruptible sleep",
    "T": "stopped",
    "t": "stopped for a debugger",
    "Z": "dead",
    "I": "idle",
}


@dataclass(frozen=True, slots=True)
class Trace:
    """What a worker's process leaves behind, apart from its output.

    `status`: its Popen's return code, None for one that is still there. `stacks`: faulthandler's text, "" if there is
    none, and then `note` may say why. `threads`: a line for each kind, as they were when the stacks were asked for.
    """

    pid: int
    status: int | None
    up_s: float
    stacks: str
    threads: tuple[str, ...]
    note: str


class Stacks:
    """The pool's end of one worker's file. Nothing here blocks; only the constructor raises."""

    def __init__(self) -> None:
        """Raises `OSError` where the machine has no such file, or no descriptor left for it."""
        self.threads: tuple[str, ...] = ()
        self.note = ""
        self.fd = os.memfd_create("stacks", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.fd, STACKS_BYTES)
            seals = fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, seals)
        except OSError:
            os.close(self.fd)
            raise
        self._before = self._seen = 0
        self._until = self._seen_at = 0.0

    def ask(self, pid: int, now: float) -> bool:
        """Has the worker write them; False if it cannot, and `note` says why. REQUIRES a process not yet reaped."""
        self.threads = threads_of(pid)
        state = _state_of(pid)
        if state in ("", "Z"):
            self.note = "it died before its stacks could be taken"
        elif state in ("T", "t"):
            self.note = _why_none(state)
        elif not _handles(pid):
            self.note = "no stacks could be taken: the process did not listen for the signal yet"
        else:
            self._before = self._seen = self._written()  # before it can write
            self._seen_at, self._until = now, now + TAKE_S
            with suppress(ProcessLookupError):
                os.kill(pid, STACKS_SIGNAL)
            return True
        return False

    def settled(self, pid: int, now: float) -> bool:
        """Whether waiting on is of no use: they are all there, or it has taken too long, see `note`."""
        written = self._written()
        if written != self._seen:
            self._seen, self._seen_at = written, now
        if now >= self._until:
            if written == self._before:
                self.note = _why_none(_state_of(pid))
            return True
        return written > self._before and now - self._seen_at >= QUIET_S

    def text(self) -> str:
        data = os.pread(self.fd, self._written(), 0)
        text = data.decode(errors="replace").replace("\0", "").strip()
        return text if len(data) < STACKS_BYTES else f"{text}\n… and more that did not fit"

    def close(self) -> None:
        os.close(self.fd)

    def _written(self) -> int:
        """The worker writes through the same open file, so where its position is, its text ends."""
        return min(os.lseek(self.fd, 0, os.SEEK_CUR), STACKS_BYTES)


def _why_none(state: str) -> str:
    match state:
        case "T" | "t":
            return f"no stacks could be taken: the process was {_STATES[state]} (by SIGSTOP, or in a terminal)"
        case "D":
            return "no stacks could be taken: the main thread was inside the kernel, where no signal reaches it"
        case _:
            return f"no stacks came within {TAKE_S:g} s"


def threads_of(pid: int) -> tuple[str, ...]:
    """A process's threads as the kernel sees them, those that are alike together: `3 × python: sleeping in futex`."""
    kinds: Counter[tuple[str, str, str]] = Counter()
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task")[:MOST_THREADS]:
            with suppress(OSError):  # it ended meanwhile
                kinds[_kind(f"/proc/{pid}/task/{thread}")] += 1
    lines = []
    for (name, state, where), count in kinds.most_common(MOST_LINES):
        several = f"{count} × " if count > 1 else ""
        lines.append(f"{several}{name}: {_STATES.get(state, state)}" + (f" in {where}" if where else ""))
    return tuple(lines)


def _kind(folder: str) -> tuple[str, str, str]:
    """Its name, the letter of its state, and the function of the kernel in which it waits."""
    # The name in parentheses may hold anything, parentheses too.
    name, _, rest = _read(f"{folder}/stat").rpartition(")")
    try:
        where = _read(f"{folder}/wchan").strip()
    except OSError:
        where = ""
    return name.partition("(")[2], rest.split()[0], "" if where == "0" else where


def _state_of(pid: int) -> str:
    """The letter of its main thread's state; "" for a process that is gone."""
    with suppress(OSError, IndexError):
        return _read(f"/proc/{pid}/stat").rpartition(")")[2].split()[0]
    return ""


def _handles(pid: int) -> bool:
    """Whether it has a handler for the signal, which would kill it otherwise."""
    with suppress(OSError, ValueError):
        for line in _read(f"/proc/{pid}/status").splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (STACKS_SIGNAL - 1) & 1)
    return False


def _read(path: str) -> str:
    with open(path, errors="replace") as file:
        return file.read()
