"""All that a pool is started with: printable before anything runs. `pool.planning` decides it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from pool.core.policy import Policy, SlotPlan
from pool.core.versions import Versions
from pool.devices import Device, slot_names
from pool.plan.placement import ModelDemand
from pool.plan.shares import Share
from pool.plan.sizes import Sizes
from pool.plan.versions import Family, Served
from pool.wire.entries import entry_name, is_entry, model_of
from pool.wire.worker_messages import ModelSettings, SessionSettings, Welcome

__all__ = ["Guest", "Plan", "at_version"]

_Kept = TypeVar("_Kept")
_Named = TypeVar("_Named", ModelDemand, ModelSettings)


@dataclass(frozen=True, slots=True)
class Guest:
    """`model` is on the device `at` as well, while the one that it was placed on, its `home`, is gone."""

    model: str
    home: Device
    at: Device


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`shares` has each slot's device, models and session, `session` is what `[session]` says.

    `demands`: what the models were placed by. `cores`: of each slot, those that its worker is bound to, if it is.

    `notes` are lines for the person who starts the pool.

    `state` is the folder for what outlives the pool, None where there is none; `quarantine_keep` and
    `quarantine_max_bytes` bound the jobs that are kept there, `recorder_keep` and `recorder_max_bytes` the bundles,
    `arena_max_bytes` and `arena_client_max_bytes` what is lent to all clients and to one.

    `paths` are those of the models as configured; `versions` is what was found there of those that have versions, which
    are looked for again every `watch_s` seconds, unless that is None. A model of several versions is here as an entry
    for each, with a name of its own; `folders` are of those models of which all are served. `older` as in `Selection`.

    `guests` are in `shares` too, at home and where they are.
    """

    endpoint: str
    listen: tuple[str, ...]
    shares: tuple[Share, ...]
    demands: tuple[ModelDemand, ...]
    models: tuple[ModelSettings, ...]
    sizes: Sizes
    paths: Mapping[str, str]
    versions: Mapping[str, Served]
    folders: Mapping[str, str]
    older: Mapping[str, tuple[Served, ...]]
    watch_s: float | None
    session: SessionSettings
    lanes: int
    spin_s: float
    heartbeat_s: float
    cpu_share: int
    cores: tuple[tuple[int, ...], ...]
    policy: Policy
    state: Path | None
    quarantine_keep: int
    quarantine_max_bytes: int
    recorder_keep: int
    recorder_max_bytes: int
    arena_max_bytes: int
    arena_client_max_bytes: int
    notes: tuple[str, ...]
    guests: tuple[Guest, ...] = ()

    @property
    def model_bytes(self) -> Mapping[str, int]:
        return {name: size.size_bytes for name, size in self.sizes.items()}

    @property
    def devices(self) -> tuple[Device, ...]:
        """Of each slot; those that share a device have the same."""
        return tuple(share.device for share in self.shares)

    @property
    def placement(self) -> tuple[tuple[str, ...], ...]:
        """The model names of each slot."""
        return tuple(share.models for share in self.shares)

    def weighs(self, slot: int) -> ModelSettings | None:
        """The model whose footprint is what the slot's worker takes of its GPUs; None where that says nothing.

        A worker with several models does not tell which took what, and one that takes a part of the memory at its
        start, or no more than a part, does not tell what it needs.
        """
        share = self.shares[slot]
        free = share.session.allow_growth and not share.session.per_process_gpu_memory_fraction
        if share.device.kind != "gpu" or len(share.models) != 1 or not free:
            return None
        return next(model for model in self.models if model.name in share.models)

    def at_home(self, gone: Collection[Guest] | None = None) -> "Plan":
        """The same, but for these guests, or without any, where they were placed alone."""
        leave = self.guests if gone is None else gone
        shares = tuple(
            share.without({guest.model for guest in leave if guest.at == share.device}) for share in self.shares
        )
        return replace(self, shares=shares, guests=tuple(guest for guest in self.guests if guest not in leave))

    def guest_bytes(self, device: Device) -> int:
        """What guests take there, as far as that is known."""
        sizes = {demand.name: demand.memory_bytes or 0 for demand in self.demands}
        return sum(sizes.get(guest.model, 0) for guest in self.guests if guest.at == device)

    def slots(self) -> list[SlotPlan]:
        """What the core is to know of each slot."""
        return [
            SlotPlan(models, device.label, slot_names(number, device), self._versions(models))
            for number, (models, device) in enumerate(zip(self.placement, self.devices, strict=True))
        ]

    def _versions(self, models: Sequence[str]) -> dict[str, int]:
        return {name: self.versions[name].number for name in models if name in self.versions}

    def with_versions(self, found: Mapping[str, Served]) -> "Plan":
        """The same, but for these versions of these models."""
        versions = {**self.versions, **found}
        return replace(self, versions=versions, models=tuple(at_version(model, versions) for model in self.models))

    def path_of(self, name: str) -> str | None:
        """Where a worker is told that the model lies."""
        return next((model.path for model in self.models if model.name == name), None)

    @property
    def settled(self) -> Mapping[str, tuple[str, ...]]:
        """By model, what jobs get that name it: itself, or its versions, in their order."""
        single = {name: (name,) for name in self.paths if not is_entry(name)}
        several = {
            name: tuple(entry_name(name, number) for number in versions.numbers)
            for name, versions in self.policy.versions.items()
        }
        return {**single, **several}

    @property
    def families(self) -> Mapping[str, Family]:
        """By model, those of which all versions are served, and which jobs get by now."""
        settled = self.settled
        return {
            name: Family(path, tuple(self.versions[entry] for entry in settled[name]))
            for name, path in self.folders.items()
            if name in self.policy.versions
        }

    @property
    def pending(self) -> tuple[str, ...]:
        """What no job gets yet: versions, or a model in the place of its versions."""
        settled = self.settled
        return tuple(name for name in self.paths if name not in settled.get(model_of(name), ()))

    def spared(self, name: str) -> "Plan | None":
        """The same without a version that cannot be loaded, or with an older one; None where there is no other."""
        versions = self.policy.versions.get(model_of(name))
        if is_entry(name) and versions is not None and len(versions.numbers) > 1 and name in self.paths:
            return self.without({name})
        if next_ones := self.older.get(name, ()):
            return replace(self.with_versions({name: next_ones[0]}), older={**self.older, name: next_ones[1:]})
        return None

    def restored(self, models: Collection[str], good: "Plan") -> "Plan | None":
        """The same, but with these models, in all their versions, as `good` has them, or without those that it has not.

        None where one of them would have another place, or a worker with other options: then it is not theirs alone.
        REQUIRES that both are at home.
        """
        names = {name for name in (*self.paths, *good.paths) if model_of(name) in models}
        back = names & good.paths.keys()
        shares = []
        for now, then in zip(self.shares, good.shares, strict=True):
            here = back & set(then.models)
            if here != back & set(now.models) or (here and now.session != then.session):
                return None
            rest = now.without(names - back)
            sessions = {name: each for name, each in rest.sessions.items() if name not in back}
            former = {name: each for name, each in then.sessions.items() if name in back}
            shares.append(replace(rest, sessions={**sessions, **former}))
        return replace(
            self,
            shares=tuple(shares),
            demands=tuple(_as_in(_by_name(self.demands), _by_name(good.demands), names).values()),
            models=tuple(_as_in(_by_name(self.models), _by_name(good.models), names).values()),
            sizes=_as_in(self.sizes, good.sizes, names),
            paths=_as_in(self.paths, good.paths, names),
            versions=_as_in(self.versions, good.versions, names),
            folders=_as_in(self.folders, good.folders, models),
            older=_as_in(self.older, good.older, names),
            policy=replace(
                self.policy,
                versions=_as_in(self.policy.versions, good.policy.versions, models),
                models=_as_in(self.policy.models, good.policy.models, names),
            ),
        )

    def without(self, names: Collection[str]) -> "Plan":
        """The same, but for these models."""
        return replace(
            self,
            policy=replace(self.policy, versions=_rest(self.policy.versions, names)),
            shares=tuple(share.without(names) for share in self.shares),
            demands=tuple(demand for demand in self.demands if demand.name not in names),
            sizes={name: size for name, size in self.sizes.items() if name not in names},
            models=tuple(model for model in self.models if model.name not in names),
            paths={name: path for name, path in self.paths.items() if name not in names},
            versions={name: served for name, served in self.versions.items() if name not in names},
            guests=tuple(guest for guest in self.guests if guest.model not in names),
        )

    def welcome(self, slot: int) -> Welcome:
        """What the worker of a slot is told."""
        share = self.shares[slot]
        sessions = {name: self._session(slot, session) for name, session in share.sessions.items()}
        models = tuple(
            replace(model, session=sessions.get(model.name)) for model in self.models if model.name in share.models
        )
        session = self._session(slot, share.session)
        return Welcome(self.lanes, len(share.device.uuids), self.heartbeat_s, session, models, spin_s=self.spin_s)

    def _session(self, slot: int, session: SessionSettings) -> SessionSettings:
        if self.shares[slot].device.kind == "cpu" and session.intra_op_parallelism_threads == 0:
            # TensorFlow would start a thread a core in each of the CPU workers.
            return replace(session, intra_op_parallelism_threads=len(self.cores[slot]) or self.cpu_share)
        return session


def _rest(versions: Mapping[str, Versions], names: Collection[str]) -> Mapping[str, Versions]:
    rest = {
        model: Versions(tuple(number for number in each.numbers if entry_name(model, number) not in names), each.labels)
        for model, each in versions.items()
    }
    return {model: each for model, each in rest.items() if each.numbers}


def _by_name(several: Sequence[_Named]) -> dict[str, _Named]:
    return {each.name: each for each in several}


def _as_in(mine: Mapping[str, _Kept], good: Mapping[str, _Kept], names: Collection[str]) -> dict[str, _Kept]:
    """What is mine, but for these names: what there is of them in `good`."""
    kept = {
        name: good[name] if name in names else each for name, each in mine.items() if name not in names or name in good
    }
    return {**kept, **{name: each for name, each in good.items() if name in names}}


def at_version(model: ModelSettings, versions: Mapping[str, Served]) -> ModelSettings:
    """What a worker is told of a model that has versions: where the one is that it is to load."""
    served = versions.get(model.name)
    return model if served is None else replace(model, path=served.path, version=served.number)
