"""From the versions that jobs get to others, without a job lost on the way.

    running ─► first: the new ones beside the former, which jobs get ─ all slots have them ─► last: jobs get the new
                                                                                             ones, the former go

Where nothing new comes there is the last alone. Reads no disk beyond what planning reads.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pool.core.versions import Versions
from pool.errors import InvalidConfig
from pool.plan.guests import keep_guests
from pool.plan.plan import Plan
from pool.plan.planning import replan
from pool.plan.selection import Selection, entries_of

if TYPE_CHECKING:
    from pool.config import Settings

__all__ = ["Changeover", "changeover"]


@dataclass(frozen=True, slots=True)
class Changeover:
    """`first`: what is rolled out before `last`, where versions come that no job may get before they are READY."""

    last: Plan
    first: Plan | None = None


def changeover(
    former: "Settings", wanted: Selection, running: Plan, environ: Mapping[str, str], *, place_anew: bool
) -> Changeover:
    """`former`: of `running`, whose guests stay where they are.

    Raises `InvalidConfig`, also where there is no room for the former versions beside the new ones.
    """

    def planned(selection: Selection, after: Plan, *, place_anew: bool = False) -> Plan:
        plan = replan(selection, environ, after, place_anew=place_anew)
        return keep_guests(selection.settings, plan, running.guests)

    settled = running.settled
    changed = [name for name, entries in wanted.all_entries().items() if set(entries) - set(settled.get(name, entries))]
    if not changed:
        return Changeover(planned(wanted, running, place_anew=place_anew))
    beside = {entry for name in changed for entry in settled[name]} - {model.name for model in wanted.settings.model}
    if beside:
        both = _with(former, wanted, running, beside)
        try:
            first = planned(both, running, place_anew=place_anew)
            last = planned(wanted, first)
        except InvalidConfig as error:
            why = "until the new versions serve, the former ones stay beside them"
            raise InvalidConfig(f"{error}\n{', '.join(sorted(changed))}: {why}: {', '.join(sorted(beside))}") from None
    else:
        first = last = planned(wanted, running, place_anew=place_anew)
    before, after = running.policy.versions, dict(wanted.versions)
    for name in changed:
        after.pop(name, None)
        if name in before:
            after[name] = _meanwhile(before[name], wanted.versions.get(name))
    return Changeover(last, replace(first, policy=replace(first.policy, versions=after)))


def _with(former: "Settings", wanted: Selection, running: Plan, beside: set[str]) -> Selection:
    """What is wanted, and these of what is running."""
    models = [model for section in former.model for model in entries_of(section, running.versions, beside)]
    settings = wanted.settings.model_copy(update={"model": (*wanted.settings.model, *models)})
    served = {name: served for name, served in running.versions.items() if name in beside}
    return replace(wanted, settings=settings, served={**wanted.served, **served})


def _meanwhile(before: Versions, after: Versions | None) -> Versions:
    """Labels move at once to versions that are served, and to new ones when those are."""
    if after is None:
        return before
    labels = {
        label: number if number in before.numbers else before.labels[label]
        for label, number in after.labels.items()
        if number in before.numbers or label in before.labels
    }
    return Versions(before.numbers, labels)
