"""The one wait of a process: what it waits for, and how it is woken.

Sockets, descriptors of processes and a doorbell come in as sources, instants as alarms. Out go calls of what is ready
or due, and of nothing else. It never knows what a source means, and never waits without an end.
"""

from pool.loop.doorbell import Doorbell
from pool.loop.loop import LONGEST_WAIT_S, Loop
from pool.loop.watch import Source, Watch

__all__ = ["LONGEST_WAIT_S", "Doorbell", "Loop", "Source", "Watch"]
