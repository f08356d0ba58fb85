"""Who is to blame where what is new does not come up: a failover, a version, a model, or all that is new. Pure."""

from collections.abc import Callable, Collection
from dataclasses import replace

from pool.core.events import Death
from pool.plan.plan import Plan
from pool.plan.rollout import Refused, settings_of
from pool.plan.versions import Served
from pool.plan.world import Failure
from pool.wire.entries import is_entry, model_of
from pool.wire.worker_messages import Welcome

__all__ = ["copy_left_out", "failure_of", "nowhere", "unloadable", "unready"]

UNLOADED = "a worker could not load it"


def failure_of(refused: Refused, plan: Plan, left_out: Collection[str] = ()) -> Failure:
    """What did not come up in one slot is not to be in any: that of the model that the worker has named.

    `left_out`: what slots were without before, because they could not load it.

    If it has named none, or one of which nothing is new, all that was new goes. Failovers were served before, unless
    no job got them yet: where the worker has named none of them, they are to blame only where nothing else was new.
    """
    named = None if refused.death is None else refused.death.blamed
    at = plan.devices[refused.slot]
    before = {model.name: model for model in settings_of(refused.former).models}
    told = {model.name: model for model in settings_of(refused.told).models if before.get(model.name) != model}
    more = replace(refused.former, models=()) != replace(refused.told, models=())  # so is something that is no model's
    known = told.keys() - {*plan.pending}
    here = {each.model: each for each in plan.failovers if each.at == at and each.model in known}
    if named in here or (here and here.keys() == told.keys() and not more):
        why = f"a worker on {at.label} could not load it"
        unfit = {
            (each.model, each.home): f"model {each.model} cannot move from {each.home.label}: {why}"
            for each in here.values()
            if named not in here or each.model == named
        }
        return Failure(why, unfit=unfit)
    new = (told.keys() - here.keys()) | {*plan.pending}
    if named is not None and named not in new:
        return Failure(f"a worker could not load model {named}", None if more else _models(new))
    guilty = new if named is None else {named}
    there = told.keys() & before.keys()
    versions = {name for name in there if told[name].version is not None and told[name].path != before[name].path}
    versions |= {name for name in told.keys() - there if told[name].version is not None and name in left_out}
    entries = [each.path for each in plan.models if each.name in guilty and is_entry(each.name)]
    # Whether a model changed by itself, or by what is every model's, is not told by what the worker had.
    all_of_it = more and (named is None or named in there - versions)
    broken = _served(plan, [*(told[name].path for name in sorted(versions & guilty)), *entries])
    return Failure(UNLOADED, None if all_of_it else _models(guilty), broken)


def unloadable(slot: int, death: Death, welcome: Welcome, plan: Plan) -> Failure | None:
    """Of a slot that has not served yet: the model that makes its worker useless for all that it was told of.

    A version goes where its model has another. What else cannot be loaded leaves this slot alone: the same model may
    be served by others. The last of all that the pool has stays, so that the pool ends with what its worker said.
    """
    told = next((each for each in welcome.models if each.name == death.blamed), None)
    if told is None or death.restartable:
        return None
    model = plan.model(told.name)
    if model is None or model.path != told.path or told.name not in plan.shares[slot].models:
        return None  # of several slots with it the first one has told
    name = model_of(told.name)
    broken = _served(plan, [told.path]) if death.unloadable else ()
    others = {*plan.world.found.get(name, ())} - {served for _, served in broken}
    if broken and others:
        return Failure(UNLOADED, {name}, broken)
    if not any({*share.models} - ({told.name} if each == slot else set()) for each, share in enumerate(plan.shares)):
        return None
    return Failure(UNLOADED, {name}, broken, unloadable={told.name: {slot: _why(death.text, told.name)}})


def unready(death: Death, plan: Plan) -> Failure | None:
    """Of a slot that has its settings, and no turn: what no job gets yet, if its worker could not load that."""
    model = next((each for each in plan.models if each.name == death.blamed and each.name in plan.pending), None)
    if model is None or death.restartable:
        return None
    return Failure(UNLOADED, _models({model.name}), _served(plan, [model.path]))


def copy_left_out(refused: Refused, plan: Plan, before: Collection[str], serving: Collection[str]) -> Failure | None:
    """At a further copy of a new model that other slots serve: its slot alone is without it. Else None.

    `before`: what the pool had; `serving`: what slots serve now.
    """
    death = refused.death
    name = "" if death is None else death.blamed or death.loading or ""
    if death is None or name not in {model.name for model in refused.told.models}.intersection(serving):
        return None
    if model_of(name) in map(model_of, before) or plan.homes[name].demand.replicas is not None:
        return None  # it was served as it was before, or somebody has asked for as many copies
    return Failure(UNLOADED, {model_of(name)}, unloadable={name: {refused.slot: _why(death.text, name)}})


def nowhere(plan: Plan, is_lost: Callable[[int], bool]) -> set[str]:
    """What is pending and in no slot whose device is there, though former versions of the same model are served."""
    here = {name for slot, share in enumerate(plan.shares) if not is_lost(slot) for name in share.models}
    settled = plan.settled
    absent = [name for name in plan.pending if name not in here]
    return {name for name in absent if not here.isdisjoint(settled.get(model_of(name), ()))}


def _why(text: str, name: str) -> str:
    """What a worker has said of the model, without its exit status."""
    return text.partition(f"model {name}: ")[2] or text


def _models(names: Collection[str]) -> frozenset[str]:
    return frozenset(model_of(name) for name in names)


def _served(plan: Plan, paths: Collection[str]) -> tuple[tuple[str, Served], ...]:
    """The versions in these folders, with their models."""
    found = {each.path: (name, each) for name, several in plan.world.found.items() for each in several}
    return tuple(found[path] for path in dict.fromkeys(paths) if path in found)
