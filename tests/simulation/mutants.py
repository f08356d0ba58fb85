"""The core with one promise broken: each mutant is a patch of one place, and a figure of the simulation has to suffer."""

from support.mutants import Mutant

MUTANTS = (
    Mutant("a flood stands behind itself", "scheduler", "job.rank = ranks[key]", "pass"),
    Mutant("clients share by rows", "scheduler", "job.rank + (call.rows or 1)", "job.rank + 1"),
    Mutant("models take turns by what they used, not one by one", "dispatcher", "used + cost_s / model.policy.weight", "used"),
    Mutant("weights count", "dispatcher", "used + cost_s / model.policy.weight", "used + cost_s"),
    Mutant("a late client starts at the clock", "scheduler", "job.rank = clocks[-job.priority]", "pass"),
    Mutant("models share by weight", "dispatcher", "- batch.charged_s) / model.policy.weight", "- batch.charged_s)"),
    Mutant("what a batch took is charged", "dispatcher", "(now - batch.began - batch.charged_s)", "0.0"),
    Mutant("a late model starts at the slot's clock", "dispatcher", "used[model] = group.clock", "pass"),
    Mutant("what can hardly end in time gives way", "jobs", "self.live > batch and", "False and"),
    Mutant("what cannot end in time does not run", "jobs", "        job.place = LEFT\n        return False", "        return True"),
)  # fmt: skip
