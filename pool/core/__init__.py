"""What the pool decides: which job runs where and when, and what follows from it. Sans-I/O.

Calls about jobs and `events` of rare things come in, each with the time. Out go the lists of `Orders`: batches to run,
answers, and `actions` for rare things. It never opens a socket or file, starts no thread, and looks at no clock.

    machine ─► dispatch ─► trial ─► queue ─► fleet      each knows those after it, and the words of `jobs` and `policy`
"""

from pool.core.jobs import Batch, IllegalStep, Job, Part
from pool.core.machine import Machine
from pool.core.orders import Orders
from pool.core.policy import AccountPolicy, ModelPolicy, Policy, SlotPlan
from pool.core.versions import Versions

__all__ = [
    "AccountPolicy",
    "Batch",
    "IllegalStep",
    "Job",
    "Machine",
    "ModelPolicy",
    "Orders",
    "Part",
    "Policy",
    "SlotPlan",
    "Versions",
]
