"""The programs, by kind and seed. Each kind is made so that no outcome of it hangs on who shares a batch with whom.

lone       nothing is joined: errors, deaths, hangs, lanes that cannot be reached; attempts count
batched    rows are joined and cut: errors, killers, memory that is not enough
ordered    stateful models: the order of each client's jobs, while priorities, restarts and deaths have their way
manners    cancelled, vanished, too late, malformed, from another pool, or simply too many
changing   versions, other models, restarts and drains between bursts
ending     the pool stops, in time or not, or a slot is lost for good
shared     clients and models under contention: who gets how much
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from golden.dice import Dice
from golden.program import (
    ALWAYS,
    PLUG_S,
    Cancel,
    Doom,
    Drain,
    Gone,
    Job,
    Load,
    Measure,
    Model,
    Move,
    Pass,
    Program,
    Restart,
    Settle,
    Stop,
    Submit,
    Version,
)
from pool.core.policy import ModelPolicy, Policy
from pool.core.versions import Versions
from pool.wire.entries import entry_name

__all__ = ["KINDS", "program_of"]

FAR_S = 100_000.0
PATIENT = Policy(
    default_timeout_s=FAR_S, hung_after_s=100.0, restart_intensity=100_000, backoff_max_s=1.0, drain_timeout_s=FAR_S
)
PLUG = Model(batchable=False)
WHOLE = Model(batchable=False)


@dataclass
class Draft:
    """A program that is being written."""

    dice: Dice
    models: dict[str, Model]
    placement: tuple[tuple[str, ...], ...]
    lanes: int = 1
    jobs: list[Job] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    sizes: dict[str, ModelPolicy] = field(default_factory=dict)
    policy: Policy = PATIENT
    versions: dict[str, int] = field(default_factory=dict)

    def burst(self, jobs: Sequence[Job], *then: Move, cancelled: int = 0, plugged: bool = True) -> None:
        """All of them come at once, while the lanes are busy; so many of them are cancelled before any can start."""
        if plugged:
            self.plug()
        numbers = self.add(jobs)
        self.moves.append(Submit(numbers))
        if cancelled:
            self.moves.append(Cancel(self.dice.some(numbers, cancelled)))
        self.moves += [*then, Settle()]

    def plug(self) -> None:
        """A job of its own keeps each lane busy."""
        slots = [slot for slot, models in enumerate(self.placement) if "plug" in models]
        plugs = [
            Job("plug", "plug", seconds=PLUG_S, device=f"slot:{slot}") for slot in slots for _ in range(self.lanes)
        ]
        self.moves += [Submit(self.add(plugs)), Pass(0.5)]

    def add(self, jobs: Sequence[Job]) -> tuple[int, ...]:
        first = len(self.jobs)
        self.jobs += jobs
        return tuple(range(first, len(self.jobs)))

    def program(self, name: str) -> Program:
        policy = replace(self.policy, models=self.sizes)
        return Program(
            name,
            self.placement,
            self.lanes,
            self.models,
            policy,
            tuple(self.jobs),
            tuple(self.moves),
            self.versions,
        )


def clients(dice: Dice) -> list[str]:
    return [f"c{number}" for number in range(dice.number(2, 4))]


def lone(dice: Dice) -> Draft:
    models = {"pure": WHOLE, "other": WHOLE, "counter": Model(batchable=False, stateful=True), "plug": PLUG}
    slots = dice.number(1, 3)
    draft = Draft(dice, models, (tuple(models),) * slots)
    draft.policy = replace(
        draft.policy,
        max_attempts=dice.number(1, 4),
        replacement=dice.pick(("auto", "always", "off")),
        standby=dice.chance(0.2),
    )
    draft.sizes = {"pure": ModelPolicy(weight=2.0), "plug": ModelPolicy()}
    whose = clients(dice)
    for _ in range(dice.number(1, 2)):
        jobs = []
        for _ in range(dice.number(10, 24)):
            job = Job(dice.pick(whose), dice.pick(("pure", "pure", "other", "counter")))
            nature = dice.number(1, 100)
            if nature <= 10:
                job = replace(job, guilty=True)
            elif nature <= 15:
                job = replace(job, dies=ALWAYS)
            elif nature <= 22:
                # As often as may be it dies only where there is one slot: of several, each might be to blame.
                job = replace(job, dies=dice.number(1, draft.policy.max_attempts - (slots > 1)))
            elif nature <= 26:
                job = replace(job, hangs=1)
            elif nature <= 32 and (slots == 1 or job.model != "counter"):
                # A stateful model moves when a lane of its worker cannot be reached, and others may go first there.
                job = replace(job, unsent=dice.number(1, 2))
            elif nature <= 34:
                job = replace(job, fat=True)
            jobs.append(job)
        draft.burst(jobs)
    return draft


def batched(dice: Dice) -> Draft:
    room = dice.pick((None, None, 4, 12))
    models = {"wide": Model(room=room), "padded": Model(), "whole": WHOLE, "plug": PLUG}
    slots = dice.number(1, 3)
    draft = Draft(dice, models, (tuple(models),) * slots, lanes=dice.number(1, 2))
    draft.policy = replace(draft.policy, max_attempts=dice.number(2, 3))
    draft.sizes = {
        "wide": ModelPolicy(max_batch=dice.pick((8, 16, 32)), batch_wait_s=dice.pick((0.0, 0.0, 0.05))),
        "padded": ModelPolicy(max_batch=16, allowed_batch_sizes=(2, 6, 16)),
        "plug": ModelPolicy(),
        "whole": ModelPolicy(),
    }
    whose = clients(dice)
    killers = 0
    for _ in range(dice.number(1, 2)):
        jobs = []
        for _ in range(dice.number(15, 30)):
            model = dice.pick(("wide", "wide", "padded", "whole"))
            rows = None if model == "whole" else dice.pick((1, 1, 1, 2, 3, 7, 40))
            job = Job(dice.pick(whose), model, rows, device=dice.pick((None,) * 8 + ("slot:0", "gpu:0")))
            nature = dice.number(1, 100)
            if nature <= 6:
                job = replace(job, guilty=True)
            elif nature <= 9:
                job = replace(job, fat=True, rows=None if rows is None else 1)
            elif nature <= 13 and killers < 2:
                killers += 1
                job = replace(job, dies=ALWAYS, rows=None if rows is None else 1)
            jobs.append(job)
        draft.burst(jobs, cancelled=dice.pick((0, 0, 2)), plugged=dice.chance(0.8))
    return draft


def ordered(dice: Dice) -> Draft:
    deadly = dice.chance(0.5)
    models = {
        "counter": Model(batchable=False, stateful=True),
        "tally": Model(batchable=not deadly, stateful=True),
        "pure": Model(),
        "plug": PLUG,
    }
    slots = dice.number(1, 3)
    draft = Draft(dice, models, (tuple(models),) * slots, lanes=1 if deadly else dice.number(1, 2))
    draft.policy = replace(
        draft.policy, max_attempts=3, replacement=dice.pick(("auto", "always", "off")), standby=dice.chance(0.2)
    )
    draft.sizes = {name: ModelPolicy(max_batch=dice.pick((4, 8, 16))) for name in models}
    whose = clients(dice)
    urgent = not deadly and dice.chance(0.7)  # when a model's jobs move to another slot, priorities are no promise
    for _ in range(dice.number(1, 3)):
        jobs = []
        # Of sixteen batches of a slot one is led by what priorities have held up longest: there are fewer here.
        for _ in range(dice.number(6, 9) if urgent else dice.number(10, 24)):
            model = dice.pick(("counter", "counter", "tally", "tally", "pure"))
            rows = dice.number(1, 3) if models[model].batchable else None
            job = Job(dice.pick(whose), model, rows, priority=dice.pick((0, 0, 5, -3)) if urgent else 0)
            if deadly and rows is None and dice.chance(0.12):
                job = replace(job, dies=1)
            elif rows is None and dice.chance(0.06):
                job = replace(job, guilty=True)
            jobs.append(job)
        then: list[Move] = [Restart(dice.number(0, slots - 1))] if not urgent and dice.chance(0.5) else []
        draft.burst(jobs, *then, cancelled=dice.pick((0, 1, 3)))
        if urgent:
            break
    return draft


def manners(dice: Dice) -> Draft:
    models = {"pure": Model(), "whole": WHOLE, "counter": Model(batchable=False, stateful=True), "plug": PLUG}
    slots = dice.number(1, 3)
    draft = Draft(dice, models, (tuple(models),) * slots, lanes=dice.number(1, 2))
    draft.sizes = {"pure": ModelPolicy(max_batch=dice.pick((4, 16))), "plug": ModelPolicy()}
    crowded = dice.chance(0.3)
    if crowded:
        most = dice.pick((None, 12))
        draft.policy = replace(draft.policy, max_jobs=dice.number(20, 40), client_max_jobs=most)
        draft.sizes["pure"] = replace(draft.sizes["pure"], max_jobs=dice.pick((None, 15)))
    whose = clients(dice)
    jobs = []
    for _ in range(60 if crowded else dice.number(20, 40)):
        model = dice.pick(("pure", "pure", "whole", "counter"))
        job = Job(dice.pick(whose), model, dice.number(1, 5) if model == "pure" else None)
        nature = dice.number(1, 100)
        if crowded:
            pass
        elif nature <= 15:
            job = replace(job, timeout_s=dice.pick((0.0, 0.5, 3.0, PLUG_S / 2)))
        elif nature <= 25:
            job = replace(
                job,
                model=dice.pick((job.model, job.model, "unknown")),
                device=dice.pick((None, "nowhere", "slot:0", "gpu:0")),
                priority=dice.pick((0, 0, 101, -101)),
                version=dice.pick((None, None, 7, "stable")),
            )
        elif nature <= 29:
            job = replace(job, timeout_s=dice.pick((math.nan, math.inf, -1.0)))
        elif nature <= 40:
            job = replace(job, attempts=dice.number(0, 3), in_doubt=dice.chance(0.5))
        jobs.append(job)
    then: list[Move] = [Gone(whose[0])] if dice.chance(0.4) else []
    if dice.chance(0.3):
        draft.plug()
        draft.moves.append(Cancel(tuple(range(len(draft.jobs)))))  # it runs, and its answer is not wanted
        draft.moves.append(Settle())
    draft.burst(jobs, *then, cancelled=dice.number(0, 6))
    return draft


def changing(dice: Dice) -> Draft:
    models = {"m": Model(), "late": Model(), "counter": Model(batchable=False, stateful=True), "plug": PLUG}
    models |= {entry_name("both", number): Model() for number in (1, 2)}
    base = ("m", "counter", "plug", entry_name("both", 1))
    draft = Draft(dice, models, (base, (*base, entry_name("both", 2))), lanes=dice.number(1, 2))
    draft.policy = replace(
        draft.policy,
        replacement=dice.pick(("auto", "always", "off")),
        versions={"both": Versions((1, 2), {"stable": dice.number(1, 2)})},
    )
    draft.sizes = {"m": ModelPolicy(max_batch=dice.pick((4, 16))), "plug": ModelPolicy()}
    draft.versions = {"m": 1}
    whose = clients(dice)

    def burst() -> list[Job]:
        jobs = []
        for _ in range(dice.number(8, 16)):
            model = dice.pick(("m", "m", "m", "late", "counter", "both"))
            version = dice.pick((None, None, 1, 2, 3, "stable")) if model in ("m", "both") else None
            jobs.append(
                Job(dice.pick(whose), model, None if model == "counter" else dice.number(1, 3), version=version)
            )
        return jobs

    changes: list[tuple[Move, ...]] = [
        (Version("m", 2), Restart(0), Restart(1)),
        (Version("m", 2), Restart(0)),
        (Version("m", 3), Restart(1)),
        (Load(0, (*base, "late")), Load(1, ("late", *base, entry_name("both", 2)))),
        (Drain(0),),
        (Restart(0), Restart(1)),
        (Load(1, (*base, entry_name("both", 2))),),
        (Load(0, base), Load(1, (*base, entry_name("both", 2)))),
    ]
    draft.burst(burst())
    for _ in range(dice.number(2, 4)):
        draft.moves += [*dice.pick(changes), Pass(60.0)]
        draft.burst(burst(), plugged=False)
    return draft


def ending(dice: Dice) -> Draft:
    models = {"pure": Model(), "whole": WHOLE, "counter": Model(batchable=False, stateful=True), "plug": PLUG}
    alone = {"rare": Model()}
    slots = dice.number(1, 3)
    placement = (tuple(models | alone), *(tuple(models) for _ in range(slots - 1)))
    draft = Draft(dice, models | alone, placement, lanes=dice.number(1, 2))
    draft.sizes = {"pure": ModelPolicy(max_batch=dice.pick((4, 16))), "plug": ModelPolicy()}
    short = dice.chance(0.5)
    draft.policy = replace(draft.policy, drain_timeout_s=PLUG_S / 3 if short else FAR_S)
    whose = clients(dice)

    def burst(count: int) -> list[Job]:
        jobs = []
        for _ in range(count):
            model = dice.pick(("pure", "whole", "counter", "rare"))
            rows = dice.number(1, 3) if (models | alone)[model].batchable else None
            jobs.append(Job(dice.pick(whose), model, rows))
        return jobs

    draft.burst(burst(dice.number(4, 10)))
    if dice.chance(0.5):
        draft.burst(burst(dice.number(10, 20)), Doom(0))
        draft.burst(burst(dice.number(4, 10)), plugged=False)
    draft.plug()
    numbers = draft.add(burst(dice.number(10, 20)))
    draft.moves += [Submit(numbers), Stop(), Submit(draft.add(burst(3)))]
    if dice.chance(0.3):
        draft.moves.append(Stop())  # at once
    return draft


def shared(dice: Dice) -> Draft:
    several = dice.chance(0.6)
    models = {"a": Model(row_s=dice.pick((0.001, 0.003)))}
    if several:
        models["b"] = Model(base_s=dice.pick((0.002, 0.008)))
    slots, lanes = dice.pick(((1, 1), (1, 2), (2, 1)))
    draft = Draft(dice, models, (tuple(models),) * slots, lanes)
    draft.sizes = {name: ModelPolicy(max_batch=dice.pick((4, 8)), weight=dice.pick((1.0, 2.0, 3.0))) for name in models}
    draft.policy = replace(draft.policy, max_jobs=1_000_000, max_bytes=1 << 60)
    jobs = []
    for model in models:
        for number in range(dice.number(2, 3)):
            rows = dice.pick((1, 2, 5, 20))
            jobs += [Job(f"{model}{number}", model, rows) for _ in range(2600 * slots * lanes // rows)]
    draft.moves += [Submit(draft.add(jobs)), Pass(1.0), Measure(3.0)]
    draft.moves += [Gone(who) for who in dict.fromkeys(job.client for job in jobs)]
    return draft


KINDS: dict[str, tuple[Callable[[Dice], Draft], int]] = {
    "lone": (lone, 70),
    "batched": (batched, 70),
    "ordered": (ordered, 70),
    "manners": (manners, 50),
    "changing": (changing, 30),
    "ending": (ending, 30),
    "shared": (shared, 16),
}
"""How each is made, and how many there are."""


def program_of(name: str) -> Program:
    """`lone 7` is the one of seed 7."""
    kind, seed = name.split()
    number = list(KINDS).index(kind)
    return KINDS[kind][0](Dice(10_000 * number + int(seed))).program(name)
