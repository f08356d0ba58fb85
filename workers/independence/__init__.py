"""Finds out whether each row of a signature is computed by itself.

What comes in: a loaded model, and what real jobs were fed and answered. What goes out: a `Trial` with READY, then a
ROWS_COMPARED a job. It never changes an answer, and never keeps a job waiting for longer than one run.
"""

from workers.independence.checks import IDLE_S, PATIENCE, Checks
from workers.independence.known import Known
from workers.independence.samples import NOT_KEPT, Sample, Sampler, Watch
from workers.independence.warm_up import files_seen, identity_of, trials_of

__all__ = [
    "IDLE_S",
    "NOT_KEPT",
    "PATIENCE",
    "Checks",
    "Known",
    "Sample",
    "Sampler",
    "Watch",
    "files_seen",
    "identity_of",
    "trials_of",
]
