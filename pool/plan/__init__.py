"""What should run where, and the steps from what is to what should be.

What comes in: settings, models that are loaded by hand, versions on the disk, devices that are gone, and what workers
did not come up with: facts of a `World`, of which `plan` makes a `Plan`. What goes out: what each slot's next worker is
told, and the events by which the core replaces workers one slot after the other. It never starts a process, and knows
of no job but whether a model has any left.
"""

from pool.plan.footprints import Footprints
from pool.plan.placement import DevicesOccupied
from pool.plan.plan import Plan
from pool.plan.planning import make_plan
from pool.plan.reconciler import Reconciler
from pool.plan.requests import Answer, Source, request_of

__all__ = ["Answer", "DevicesOccupied", "Footprints", "Plan", "Reconciler", "Source", "make_plan", "request_of"]
