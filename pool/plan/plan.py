"""What each slot should have: printable before anything runs. `pool.plan.planning` decides it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from pool.core import Policy, SlotPlan
from pool.devices import Device, slot_names
from pool.plan.copies import why_no_more
from pool.plan.footprints import Sizes
from pool.plan.shares import Share
from pool.plan.versions import Selection
from pool.plan.world import Failover, Home, World
from pool.wire.entries import model_of
from pool.wire.worker_messages import ModelSettings, TensorFlowSettings, Welcome

if TYPE_CHECKING:
    from pool.config import Settings

__all__ = ["Plan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`shares` has each slot's device, models and settings; `models` what workers are told of each.

    `world` is what it was made of. A model of several versions is here as an entry for each, with a name of its own.
    `given`: those entries, by what jobs get of them. `cores`: of each slot, those that its worker is bound to, if it
    is; `cpu_share`: how many threads each of the others has.

    `failovers` are in `shares` too, at home and where they are; `homes` has all models where they were placed. `stays`:
    a line for each model that is on a device that is gone, and nowhere else.
    """

    world: World
    given: Selection
    shares: tuple[Share, ...]
    homes: Mapping[str, Home]
    models: tuple[ModelSettings, ...]
    cpu_share: int
    cores: tuple[tuple[int, ...], ...]
    policy: Policy
    failovers: tuple[Failover, ...] = ()
    stays: tuple[str, ...] = ()

    @property
    def settings(self) -> "Settings":
        """With an entry for each model."""
        return self.given.settings

    @property
    def endpoint(self) -> str:
        return self.world.here.endpoint

    @property
    def sizes(self) -> Sizes:
        """By model, how much of a device it was planned with."""
        return self.world.sizes

    @property
    def devices(self) -> tuple[Device, ...]:
        """Of each slot; those that share a device have the same."""
        return tuple(share.device for share in self.shares)

    @property
    def placement(self) -> tuple[tuple[str, ...], ...]:
        """The model names of each slot."""
        return tuple(share.models for share in self.shares)

    @property
    def paths(self) -> Mapping[str, str]:
        """As configured; of an entry its folder."""
        return {model.name: model.path for model in self.settings.model}

    def weighs(self, slot: int) -> ModelSettings | None:
        """The model whose footprint is what the slot's worker takes of its GPUs; None where that says nothing.

        A worker with several models does not tell which took what, and one that takes a part of the memory at its
        start, or no more than a part, does not tell what it needs.
        """
        share = self.shares[slot]
        free = share.tensorflow.allow_growth and not share.tensorflow.per_process_gpu_memory_fraction
        if share.device.kind != "gpu" or len(share.models) != 1 or not free:
            return None
        return self.model(share.models[0])

    def model(self, name: str) -> ModelSettings | None:
        """What workers are told of a model or an entry."""
        return next((model for model in self.models if model.name == name), None)

    def copies(self) -> list[dict[str, Any]]:
        """Of each model, for people: the devices that have it, and why no more do."""
        devices = self.world.here.devices
        by_device = {device: {*chain(*(s.models for s in self.shares if s.device == device))} for device in devices}
        empty = [number for number, device in enumerate(devices) if not by_device[device]]
        found = []
        for section in self.settings.model:
            slots = [number for number, device in enumerate(devices) if section.name in by_device[device]]
            demand = self.homes[section.name].demand
            stateful = section.replicas == section.devices == "auto" and demand.replicas is not None
            why = "it keeps state" if stateful else why_no_more(demand, slots, devices, empty)
            if left_out := self.world.unloadable.get(section.name):
                why = f"it could not be loaded in slot {', '.join(map(str, sorted(left_out)))}"
            found.append({"model": section.name, "devices": [devices[slot].label for slot in slots], "why": why})
        return found

    def slots(self) -> list[SlotPlan]:
        """What the core is to know of each slot."""
        return [
            SlotPlan(models, device.label, slot_names(number, device), self._versions(models))
            for number, (models, device) in enumerate(zip(self.placement, self.devices, strict=True))
        ]

    def _versions(self, models: Sequence[str]) -> dict[str, int]:
        return {name: self.given.served[name].number for name in models if name in self.given.served}

    @property
    def settled(self) -> Mapping[str, tuple[str, ...]]:
        """By model, what jobs get that name it: itself, or its versions, in their order."""
        return self.given.settled

    @property
    def pending(self) -> tuple[str, ...]:
        """What no job gets yet: versions, or a model in the place of its versions."""
        settled = self.settled
        return tuple(name for name in self.given.names if name not in settled.get(model_of(name), ()))

    def welcome(self, slot: int) -> Welcome:
        """What the worker of a slot is told."""
        share, pool = self.shares[slot], self.settings.pool
        own = {name: self._tensorflow(slot, settings) for name, settings in share.tensorflow_by_model.items()}
        models = tuple(
            replace(model, tensorflow=own.get(model.name)) for model in self.models if model.name in share.models
        )
        return Welcome(
            pool.lanes,
            len(share.device.uuids),
            self.settings.health.heartbeat,
            self._tensorflow(slot, share.tensorflow),
            models,
            spin_s=self.settings.advanced.spin_s,
        )

    def _tensorflow(self, slot: int, settings: TensorFlowSettings) -> TensorFlowSettings:
        if self.shares[slot].device.kind == "cpu" and settings.intra_op_parallelism_threads == 0:
            # TensorFlow would start a thread a core in each of the CPU workers.
            return replace(settings, intra_op_parallelism_threads=len(self.cores[slot]) or self.cpu_share)
        return settings
