"""Slots and their workers: the room that keeps a worker in each slot.

In comes what is told of processes (spawned, HELLO, beat, READY, exit), what people and the plan ask for (restart,
drain, other models), and the time. Out go orders to spawn, welcome, stop and kill workers, and which slots changed. It
never looks at a job but to ask whether anybody waits for what a slot runs, and never gives a worker any work.

A slot's state is what it is for its users, a worker's is what its process is doing; `SLOT_STEPS` and `WORKER_STEPS` are
their tables. A slot points to one worker that serves, or did last, and to those `beside` it with another role:

    SERVING       STARTING ─► LOADING ─► READY ─► STOPPING, KILLED ─► GONE        the slot's state follows
    REPLACEMENT   STARTING ─► LOADING ─► READY: it is warm; the slot is given to it, and the former one is LEAVING
    STANDBY       STARTING ─► LOADING ─► STANDING_BY; the slot is given to it when the serving one has died ─► LOADING
    LEAVING       STOPPING, KILLED ─► GONE

    slot       its serving worker             slot       its serving worker
    STARTING   STARTING                       STOPPING   STOPPING or KILLED
    LOADING    LOADING                        BACKOFF    GONE
    READY      READY                          STOPPED    GONE
    DRAINING   READY, or YIELDING while a     FATAL      GONE, or STUCK: SIGKILL did not end it
               replacement waits for the slot

What becomes of a worker beside the serving one changes nothing for the slot: people are told by `WorkerChanged`.
"""

from pool.core.fleet.fleet import Fleet
from pool.core.fleet.recycling import Recycling
from pool.core.fleet.slot import ALIVE, READY, SLOT_STEPS, Failure, Slot, SlotState
from pool.core.fleet.worker import WORKER_STEPS, KilledFor, Role, Worker, WorkerId, WorkerState

__all__ = [
    "ALIVE",
    "READY",
    "SLOT_STEPS",
    "WORKER_STEPS",
    "Failure",
    "Fleet",
    "KilledFor",
    "Recycling",
    "Role",
    "Slot",
    "SlotState",
    "Worker",
    "WorkerId",
    "WorkerState",
]
