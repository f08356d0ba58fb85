"""All that decides what should run where, as a value: what is wanted, what the disk and the devices say, and what is.

settings, models by hand ─┐
versions, sizes           ├─► World ─► `plan` ─► what each slot should have ─► `run_by`: what is, for the next plan
devices lost, not fit     │
places, failovers, versions ─┘ that are served now
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pool.devices import Device
from pool.plan.footprints import Sizes
from pool.plan.placement import ModelDemand
from pool.plan.versions import Found, Selection, Served, Stamp, select
from pool.wire.entries import model_of

if TYPE_CHECKING:
    from pool.config import Settings
    from pool.config.settings import ModelSection
    from pool.plan.plan import Plan

__all__ = ["Failover", "Failure", "Here", "Home", "Unloadable", "World"]

_Kept = TypeVar("_Kept")

Unloadable = Mapping[str, Mapping[int, str]]
"""By model or version, and slot, why a worker there could not load it. It is not tried again until somebody asks."""


@dataclass(frozen=True, slots=True)
class Here:
    """The machine, which a pool looks at once: it has the same `devices`, and its workers the same `cores`, to its end.

    `cores`: those that it may use. `notes`: lines for the person who starts the pool. `state` is the folder for what
    outlives it, None where there is none.
    """

    devices: tuple[Device, ...]
    notes: tuple[str, ...]
    endpoint: str
    state: Path | None
    cores: frozenset[int]


@dataclass(frozen=True, slots=True)
class Home:
    """Where a model was placed, by their numbers, and what it asked for then: as long as it does, it stays there.

    `devices`: first those that it has to be on, then those of further copies.
    """

    demand: ModelDemand
    devices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Failover:
    """`model` is on the device `at` as well, while the one that it was placed on, its `home`, is gone."""

    model: str
    home: Device
    at: Device


@dataclass(frozen=True, slots=True)
class Failure:
    """What of a plan does not come up, and `why`, for people.

    `models` go back to what was served before; None: so does all that is wanted. `broken`: versions, with their models,
    that are not to be tried again. `unfit`: by model and device that is gone, why it does not come up elsewhere.
    `unloadable`: by what a worker could not load, and its slot, why.
    """

    why: str
    models: Collection[str] | None = ()
    broken: tuple[tuple[str, Served], ...] = ()
    unfit: Mapping[tuple[str, Device], str] = field(default_factory=dict)
    unloadable: Unloadable = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What is wanted: `settings`, of whose models those in `loaded` are beside the file's.

    What there is: `found`, by model the versions that may be served; `sizes`, by entry; `files`, by model what lay at
    its path when somebody asked. `lost`: slots whose device is gone and that have not served since. `shut`: slots that
    serve nothing. `unfit`: by model and device that is gone, why it does not come up elsewhere. `broken`: by path, the
    files of each version that did not come up. `unloadable`: what slots are without, because their first workers could
    not load it. `stateful`: by model of which a worker has said that it keeps state, the number of the device where
    that state is.

    What is: `slots`, by their devices; `homes` and `failovers`; `given`, what jobs get; `up`, what every slot has that
    should. `may_move`: whether the request asks for other places, so that models that have not changed may move.
    """

    here: Here
    settings: "Settings"
    loaded: "Mapping[str, ModelSection]" = field(default_factory=dict)
    found: Found = field(default_factory=dict)
    sizes: Sizes = field(default_factory=dict)
    files: Mapping[str, Stamp] = field(default_factory=dict)
    lost: frozenset[int] = frozenset()
    shut: frozenset[int] = frozenset()
    unfit: Mapping[tuple[str, Device], str] = field(default_factory=dict)
    broken: Mapping[str, Stamp] = field(default_factory=dict)
    unloadable: Unloadable = field(default_factory=dict)
    stateful: Mapping[str, int] = field(default_factory=dict)
    slots: tuple[Device, ...] = ()
    homes: Mapping[str, Home] = field(default_factory=dict)
    failovers: tuple[Failover, ...] = ()
    given: Selection | None = None
    up: frozenset[str] = frozenset()
    may_move: bool = False

    @property
    def out_of_service(self) -> frozenset[int]:
        """The numbers of devices that are gone, or of which a slot serves nothing."""
        return frozenset(self.here.devices.index(self.slots[slot]) for slot in self.lost | self.shut)

    def run_by(self, plan: "Plan") -> "World":
        """What is once the plan is the pool's."""
        return replace(
            self,
            slots=plan.devices,
            homes=plan.homes,
            failovers=plan.failovers,
            given=plan.given,
            up=frozenset(),
            may_move=False,
        )

    def served(self, slot: int, plan: "Plan") -> "World":
        """A slot serves (again)."""
        lost = self.lost - {slot}
        if lost == self.lost:
            return self
        gone = {plan.devices[each] for each in lost}
        return replace(self, lost=lost, unfit={key: why for key, why in self.unfit.items() if key[1] in gone})

    def failed(self, failure: Failure) -> "World":
        """What did not come up is known from now on."""
        broken = {served.path: served.stamp for _, served in failure.broken}
        return replace(self, broken={**self.broken, **broken}, unfit={**self.unfit, **failure.unfit})

    def without(self, failure: Failure) -> "World":
        """None of the failure's versions, of models that have another; slots are without what they could not load."""
        broken = {served for _, served in failure.broken}
        rest = {name: tuple(each for each in several if each not in broken) for name, several in self.found.items()}
        found = {name: rest[name] or several for name, several in self.found.items()}
        left_out = {name: {**self.unloadable.get(name, {}), **slots} for name, slots in failure.unloadable.items()}
        return replace(self, found=found, unloadable={**self.unloadable, **left_out})

    def trying_again(self, former: "World", same: Collection[str]) -> "World":
        """Slots load what they are without if it is another version than before, or of a model that is not the same."""
        before, now = (select(world.settings, world.found).served for world in (former, self))
        rest = {
            name: slots
            for name, slots in self.unloadable.items()
            if model_of(name) in same and before.get(name) == now.get(name)
        }
        return replace(self, unloadable=rest)

    def instead(self, models: Collection[str] | None, good: "World") -> "Iterator[World]":
        """With these models as in `good`; or, where that takes more than their own places, with all that is wanted."""
        everything = self.restored(None, good)
        yield from (self.restored(models, good), everything)
        yield from (replace(everything, failovers=()), replace(everything, failovers=(), given=None))

    def restored(self, models: Collection[str] | None, good: "World") -> "World":
        """With these models, in all their versions and in their places, as in `good`; None: with all that is wanted."""
        if models is None:
            back = replace(good, lost=self.lost, shut=self.shut, unfit=self.unfit, broken=self.broken)
            back = replace(back, stateful=self.stateful, files=self.files)
            # What jobs get now may have to stay beside it for a while.
            sizes, homes = {**self.sizes, **good.sizes}, {**self.homes, **good.homes}
            return replace(back, sizes=sizes, homes=homes, failovers=self.failovers, given=self.given, up=self.up)
        former = {section.name: section for section in good.settings.model if section.name in models}
        sections = [
            former.pop(section.name, section)
            for section in self.settings.model
            if section.name not in models or section.name in former
        ]
        return replace(
            self,
            settings=self.settings.model_copy(update={"model": (*sections, *former.values())}),
            loaded=_as_in(self.loaded, good.loaded, models),
            found=_as_in(self.found, good.found, models),
            sizes={**self.sizes, **{name: size for name, size in good.sizes.items() if model_of(name) in models}},
            homes=_as_in(self.homes, good.homes, models),
            unloadable=_as_in(self.unloadable, good.unloadable, models),
        )

    def wants_as(self, other: "World") -> bool:
        """Whether it is the same that is wanted, whatever else there is."""
        mine, others = ((each.settings, each.found, each.unfit, each.unloadable) for each in (self, other))
        return mine == others


def _as_in(mine: Mapping[str, _Kept], good: Mapping[str, _Kept], models: Collection[str]) -> dict[str, _Kept]:
    """What is mine, but for what is of these models: what there is of them in `good`."""
    return {
        **{name: each for name, each in mine.items() if model_of(name) not in models},
        **{name: each for name, each in good.items() if model_of(name) in models},
    }
