"""The core with one promise broken: each mutant is a patch of one place, and a figure of the simulation has to suffer."""

from support.mutants import Mutant

MUTANTS = (
    Mutant("a flood stands behind itself", "scheduler", "job.rank = ranks[key]", "pass"),
    Mutant("clients share by rows", "scheduler", "job.rank + (call.rows or 1)", "job.rank + 1"),
    Mutant("models take turns by what they used, not one by one", "dispatcher", "used + cost_s / model.policy.weight", "used"),
    Mutant("weights count", "dispatcher", "used + cost_s / model.policy.weight", "used + cost_s"),
    Mutant("what can hardly end in time gives way", "jobs", "self.live > batch and", "False and"),
    Mutant("what cannot end in time does not run", "jobs", "        job.place = LEFT\n        return False", "        return True"),
)  # fmt: skip
