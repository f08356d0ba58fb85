"""What a failure or a death means: the room that judges.

In come parts of a batch that ended without a result (a run failed, a worker died, it never left the pool), jobs that
another pool did not answer, and the stop of this one. Out goes, by one table (`table`): how they are split, where they
run next (before all that wait, or alone in a worker), or the error that their job has now; and whether a client is
confined to one slot, or a slot is to blame. It never touches a result, forms no batch of what has not run yet, and
runs nothing of a model that keeps state a second time.
"""

from pool.core.trial.blame import Loss, acquit
from pool.core.trial.reruns import UNJOINED, Reruns
from pool.core.trial.splits import Group, may_fit
from pool.core.trial.verdicts import Trial

__all__ = ["UNJOINED", "Group", "Loss", "Reruns", "Trial", "acquit", "may_fit"]
