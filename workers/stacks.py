"""The stacks of this process's threads, for whoever wants to know where it hangs or crashed.

Python's faulthandler writes them from the signal handler itself: it needs neither the GIL nor memory, so it works while
a lane is inside C++. Its text goes into a file that the pool made for it: that never blocks, as a full pipe would.
"""

import faulthandler
import os
import sys

from pool.wire.stacks import STACKS_SIGNAL
from workers.environment import WrongEnvironment

__all__ = ["hand_out"]


def hand_out(stacks_fd: int | None) -> None:
    """From now on: at the pool's signal, and at a crash. Without a file, a crash's stacks go to standard error.

    Raises `WrongEnvironment` for a descriptor that was not inherited.
    """
    if stacks_fd is None:
        faulthandler.enable(sys.stderr)
        return
    try:
        os.set_inheritable(stacks_fd, False)
    except OSError as error:
        raise WrongEnvironment(f"--stacks-fd {stacks_fd}: {error.strerror}") from None
    faulthandler.enable(stacks_fd)
    faulthandler.register(STACKS_SIGNAL, stacks_fd, all_threads=True, chain=False)
