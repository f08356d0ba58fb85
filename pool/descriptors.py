"""How many file descriptors this process has, and may have. libzmq aborts the process that runs out of them."""

import os
import resource

__all__ = ["in_use", "left", "limit", "reserve"]

FOLDER = "/proc/self/fd"


def limit() -> int:
    """So many it may have."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def in_use() -> int:
    """Takes no descriptor where Linux counts them (6.2 and later), so it works at the limit, too."""
    try:
        return os.stat(FOLDER).st_size or len(os.listdir(FOLDER))
    except FileNotFoundError:  # no /proc
        return 0
    except OSError:  # none is left to look with
        return limit()


def left() -> int:
    return limit() - in_use()


def reserve() -> int:
    """What the pool keeps free of its limit: for workers, files, and the thousand that libzmq may accept unnoticed."""
    return min(4096, limit() // 4)
