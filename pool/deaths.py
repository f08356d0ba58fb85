"""How a worker ended, in words."""

import signal

from pool.core.actions import SpawnStandby, SpawnSuccessor, SpawnWorker
from pool.core.events import Death, WorkerExited
from pool.wire.exits import Exit

__all__ = ["death_of", "not_spawned"]


def death_of(returncode: int, last_output: tuple[str, ...], by_us: bool = False) -> Death:
    """A Popen's return code in words; a worker's last line says more than its status where the status is its own.

    `by_us`: the pool has killed it.
    """
    if returncode < 0:
        try:
            name = signal.Signals(-returncode).name
        except ValueError:
            name = f"signal {-returncode}"
        hint = " (out of memory?)" if -returncode == signal.SIGKILL and not by_us else ""
        return Death(name + hint, True, last_output, untouched=not by_us)
    try:
        status = Exit(returncode)
    except ValueError:
        return Death(f"exit status {returncode}", True, last_output)
    text = f"exit status {returncode}" + ("" if status is Exit.STOPPED else f" {status.name}")
    if not status.restartable and last_output:
        text = f"{text}: {last_output[-1]}"
    return Death(text, status.restartable, last_output)


def not_spawned(action: SpawnWorker | SpawnSuccessor | SpawnStandby, error: OSError) -> WorkerExited:
    """There is no process, because the machine has no room for one."""
    return WorkerExited(action.slot, action.incarnation, Death(f"cannot be spawned: {error}", restartable=True))
