"""What ties a process's life to that of its parent."""

import ctypes
import os
import signal

__all__ = ["die_with_parent"]

PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """SIGKILL for this process when the thread that spawned it ends, by the kernel, whatever this process does then.

    `parent`: its pid. Raises `OSError` where that cannot be had, or the parent has ended before.
    """
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl(PR_SET_PDEATHSIG) failed: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:
        raise ProcessLookupError(f"the parent process is {os.getppid()}, not the pool ({parent})")
