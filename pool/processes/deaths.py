"""How a worker ended, in words, and whether it is about to."""

import signal
from pathlib import Path

from pool.core.actions import SpawnReplacement, SpawnStandby, SpawnWorker
from pool.core.events import Death, WorkerExited
from pool.wire.exits import Exit
from pool.wire.load_steps import LoadStep

__all__ = ["RESTART_NEEDED", "death_of", "is_ending", "not_spawned"]

RESTART_NEEDED = "another release has replaced the files of this pool; restart the pool"

_WHILE_LOADING = (Exit.CRASHED, Exit.LOAD_FAILED)  # which may be for the sake of the model that is loaded
_OWN_WORDS = (Exit.DEVICE_TAKEN, Exit.DEVICE_LOST, Exit.NO_ROOM)  # of which the last line says all

_PF_EXITING = 0x4  # of the kernel's include/linux/sched.h
_FLAGS, _PENDING, _EXIT_CODE = 6, 28, 49  # fields of /proc/PID/stat after the name, see proc(5)


def death_of(returncode: int, last_output: tuple[str, ...], by_us: bool = False, step: LoadStep | None = None) -> Death:
    """A Popen's return code in words; a worker's last line says more than its status where the status is its own.

    `by_us`: the pool has killed it while it lived. Any other end than by SIGKILL came before that. `step`: its last.
    """
    loading = (step.model or None) if step is not None else None
    if returncode < 0:
        try:
            name = signal.Signals(-returncode).name
        except ValueError:
            name = f"signal {-returncode}"
        killed = -returncode == signal.SIGKILL
        hint = " (out of memory?)" if killed and not by_us else ""
        blamed = loading if killed and by_us else None
        untouched = not (killed and by_us)
        text = name + hint
        return Death(text, True, last_output, untouched=untouched, loading=loading, blamed=blamed, cause=name)
    try:
        status = Exit(returncode)
    except ValueError:
        return Death(f"exit status {returncode}", True, last_output, untouched=True, loading=loading)
    cause = status.name
    text = f"exit status {returncode}" + ("" if status is Exit.STOPPED else f" {status.name}")
    if status is Exit.OTHER_RELEASE:
        why = f" ({last_output[-1]})" if last_output else ""
        text = f"{text}: {RESTART_NEEDED}{why}"
        return Death(text, True, last_output, untouched=True, other_release=True, cause=cause)
    if status in _OWN_WORDS and last_output:
        no_room = status is Exit.NO_ROOM
        return Death(last_output[-1], status.restartable, last_output, untouched=True, no_room=no_room, cause=cause)
    if (not status.restartable or status is Exit.LOAD_FAILED) and last_output:
        text = f"{text}: {last_output[-1]}"
    if status is not Exit.MODEL_CANNOT_LOAD or step is None or not step.model:
        loading = loading if status in _WHILE_LOADING else None
        return Death(text, status.restartable, last_output, untouched=True, loading=loading, cause=cause)
    blamed, unloadable = step.model, step.of_files
    return Death(text, False, last_output, untouched=True, blamed=blamed, unloadable=unloadable, cause=cause)


def is_ending(pid: int) -> bool:
    """Whether the process was told by SIGKILL to end, or ends already, as far as that can be seen.

    A process closes its sockets some time before it can be reaped: what the pool sees first is not its exit.
    REQUIRES that it has not been reaped.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        flags, pending, code = (int(stat[field]) for field in (_FLAGS, _PENDING, _EXIT_CODE))
    except (OSError, ValueError, IndexError):
        return False
    return bool(flags & _PF_EXITING or pending >> (signal.SIGKILL - 1) & 1 or code == signal.SIGKILL)


def not_spawned(action: SpawnWorker | SpawnReplacement | SpawnStandby, error: OSError) -> WorkerExited:
    """There is no process, because the machine has no room for one."""
    death = Death(f"cannot be spawned: {error}", restartable=True, cause="NOT_SPAWNED")
    return WorkerExited(action.slot, action.incarnation, death)
