"""How many file descriptors this process has, and may have. libzmq aborts the process that runs out of them."""

import logging
import os
import resource

__all__ = ["ENOUGH", "allow_all", "in_use", "left", "limit", "reserve"]

log = logging.getLogger("pool.loop.descriptors")

FOLDER = "/proc/self/fd"
ENOUGH = 6144
"""From this limit on the reserve outlasts what libzmq may accept unnoticed: 1,001 at each of three listeners."""


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
    """What the pool keeps free of its limit: for workers, files, and what libzmq may accept unnoticed."""
    return min(4096, limit() // 2)


def allow_all() -> None:
    """The process may have as many as its user may have, from now on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard < ENOUGH:
        said = (
            "the limit is %d file descriptors: with fewer than %d, a burst of connections can end the"
            " pool; raise `ulimit -Hn`"
        )
        log.warning(said, hard, ENOUGH)
