"""Who is to blame where what is new does not come up: a failover, a version, a model, or all that is new. Pure."""

from collections.abc import Callable, Collection
from dataclasses import replace

from pool.core.actions import SlotChanged
from pool.core.fleet import SlotState
from pool.plan.plan import Plan
from pool.plan.rollout import Refused, settings_of
from pool.plan.versions import Served
from pool.plan.world import Failure
from pool.wire.entries import is_entry, model_of
from pool.wire.worker_messages import Welcome

__all__ = ["failure_of", "nowhere", "unloadable"]

UNLOADED = "a worker could not load it"


def failure_of(refused: Refused, plan: Plan) -> Failure:
    """What did not come up in one slot is not to be in any: that of the model that the worker has named.

    If it has named none, or one of which nothing is new, all that was new goes. Failovers were served before: unless
    the worker has named one of them, they are to blame only where nothing else was new.
    """
    named, at = refused.blamed, plan.devices[refused.slot]
    before = {model.name: model for model in settings_of(refused.former).models}
    told = {model.name: model for model in settings_of(refused.told).models if before.get(model.name) != model}
    more = replace(refused.former, models=()) != replace(refused.told, models=())  # so is something that is no model's
    here = {each.model: each for each in plan.failovers if each.at == at and each.model in told}
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
    entries = [each.path for each in plan.models if each.name in guilty and is_entry(each.name)]
    # Whether a model changed by itself, or by what is every model's, is not told by what the worker had.
    all_of_it = more and (named is None or named in there - versions)
    broken = _served(plan, [*(told[name].path for name in sorted(versions & guilty)), *entries])
    return Failure(UNLOADED, None if all_of_it else _models(guilty), broken)


def unloadable(change: SlotChanged, welcome: Welcome, plan: Plan) -> Failure | None:
    """Of a slot that has not served yet: the version that makes its worker useless for all that it has, if one does."""
    death = change.death
    if change.state is not SlotState.FATAL or death is None or not death.unloadable:
        return None
    paths = {each.path for each in plan.models}  # of several slots with it the first one has told
    told = [each.path for each in welcome.models if each.name == death.blamed and each.path in paths]
    broken = _served(plan, told)
    return Failure(UNLOADED, {model for model, _ in broken}, broken) if broken else None


def nowhere(plan: Plan, is_lost: Callable[[int], bool]) -> Failure | None:
    """What no job gets yet, if no slot can have got it, though former versions of the same model are served."""
    here = {name for slot, share in enumerate(plan.shares) if not is_lost(slot) for name in share.models}
    settled = plan.settled
    names = [name for name in plan.pending if name not in here and not here.isdisjoint(settled.get(model_of(name), ()))]
    paths = [each.path for each in plan.models if each.name in names]
    return Failure("its device is lost", _models(names), _served(plan, paths)) if names else None


def _models(names: Collection[str]) -> frozenset[str]:
    return frozenset(model_of(name) for name in names)


def _served(plan: Plan, paths: Collection[str]) -> tuple[tuple[str, Served], ...]:
    """The versions in these folders, with their models."""
    found = {each.path: (name, each) for name, several in plan.world.found.items() for each in several}
    return tuple(found[path] for path in dict.fromkeys(paths) if path in found)
