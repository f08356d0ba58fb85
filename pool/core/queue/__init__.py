"""What waits: which jobs are taken in, in which lines they wait, and what may run together.

Jobs come in with their call, client, rows and bytes. Out go refusals, the next jobs of a line as one batch, and what a
run of theirs is likely to take. It never leases a batch to a lane, and never judges a failure.

    admission ─► backlog (all jobs; each client's) ─► line of (model, device, version) ─► batching: what runs together
    calls: what jobs of one kind share    models: each one's lines, costs, and whether its rows are independent
"""

from pool.core.queue.accounts import Account
from pool.core.queue.admission import gone, never_fits, refusal
from pool.core.queue.affinity import Affinity
from pool.core.queue.answers import Answers, with_history
from pool.core.queue.backlog import Backlog
from pool.core.queue.banks import Bank
from pool.core.queue.batching import UNKNOWN_ROW_S, end_if_late, form, start_by
from pool.core.queue.calls import Call, Calls
from pool.core.queue.costs import STALE_S
from pool.core.queue.joining import Joining
from pool.core.queue.keys import Client, Key
from pool.core.queue.line import Line
from pool.core.queue.models import Model
from pool.core.queue.session_owners import SessionOwners
from pool.core.queue.tally import Counts
from pool.core.queue.unpacked import Chunks, Unpacked

__all__ = [
    "STALE_S",
    "UNKNOWN_ROW_S",
    "Account",
    "Affinity",
    "Answers",
    "Backlog",
    "Bank",
    "Call",
    "Calls",
    "Chunks",
    "Client",
    "Counts",
    "Joining",
    "Key",
    "Line",
    "Model",
    "SessionOwners",
    "Unpacked",
    "end_if_late",
    "form",
    "gone",
    "never_fits",
    "refusal",
    "start_by",
    "with_history",
]
