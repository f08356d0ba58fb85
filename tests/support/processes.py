"""Other processes, as a test sees them: which there are, what they do, and what is awaited of them."""

import contextlib
import inspect
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from pool.wire.records import Beside, Slot

__all__ = ["alive", "children", "eventually", "freeze", "pid_of", "state"]


def pid_of(slot: Slot | Beside) -> int:
    """Of a worker that is there."""
    assert slot.pid is not None, slot
    return slot.pid


def eventually(what: Callable[[], bool], timeout_s: float = 20.0, saw: Callable[[], object] | None = None) -> None:
    """Waits for a condition that another process brings about; there is no event of it to wait for.

    One that does not come fails with its own source, and with what `saw` has found then.
    """
    deadline = time.monotonic() + timeout_s
    while not what():
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {timeout_s:g} s: {_source(what)}{f'; saw: {saw()}' if saw else ''}")
        time.sleep(0.02)


def _source(what: Callable[[], bool]) -> str:
    try:
        return " ".join(inspect.getsource(what).split())
    except (OSError, TypeError):
        return repr(what)


def children(pid: int) -> list[int]:
    """The processes whose parent is `pid`, zombies too."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                # The name in parentheses may hold spaces; the parent is the second field after it.
                if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                    found.append(int(entry.name))
    return sorted(found)


def state(pid: int) -> str:
    """The letter that the kernel has for it, such as "T" for stopped; "" where there is no such process."""
    return _letter(Path(f"/proc/{pid}/stat"))


def freeze(pid: int) -> None:
    """Returns when each of its threads has stopped: on a busy machine some run on for a while after the signal."""
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: all(_letter(stat) == "T" for stat in Path(f"/proc/{pid}/task").glob("*/stat")))


def _letter(stat: Path) -> str:
    try:
        return stat.read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    return state(pid) not in ("", "Z")
