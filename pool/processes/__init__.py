"""The workers as processes: how one is started, what it prints, how it ended.

Orders to spawn, hold, stop and kill come in. Out go events (spawned, exited and why), lines of the log, and what the
kernel says of a worker's threads. It never decides when a worker is to start or to end, and never speaks with one but
over its inherited socket.
"""

from pool.processes.deaths import RESTART_NEEDED, death_of
from pool.processes.launch import cpu_share, environ_with, inherited, worker_environ
from pool.processes.stacks import Trace
from pool.processes.supervisor import Supervisor

__all__ = [
    "RESTART_NEEDED",
    "Supervisor",
    "Trace",
    "cpu_share",
    "death_of",
    "environ_with",
    "inherited",
    "worker_environ",
]
