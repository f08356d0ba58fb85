"""What is known: the configuration, the devices, what disks have, what failed, what people asked for.

Whatever changes is another value of `Facts`. What reads disks here may take long, so the pool calls it in a thread.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pool.config import Config, load
from pool.devices import Device
from pool.errors import InvalidConfig
from pool.plan.footprints import Footprints
from pool.plan.versions import Look, look
from pool.wire.files import handler_files

LOOKS, REST_S = 10, 0.3


@dataclass(frozen=True)
class Facts:
    config: Config
    devices: Sequence[Device]  # by slot
    looks: Mapping[str, Look] = field(default_factory=dict)  # by model, what its disk has
    first: Mapping[str, str] = field(default_factory=dict)  # by path of a version, the first digest of its files
    broken: Mapping[tuple[str, str], str] = field(default_factory=dict)  # by path and digest, why not to serve them
    drained: frozenset[int] = frozenset()  # slots that get nothing, since somebody has asked for it
    lost: frozenset[int] = frozenset()  # slots whose GPU is lost, until somebody restarts them
    generations: Mapping[int, int] = field(default_factory=dict)  # how often somebody asked to restart a slot
    needs: Mapping[tuple[str, str], tuple[int, str]] = field(default_factory=dict)
    """By model and path of a version, the device memory that it needs, 0 where nobody knows; and who says so."""

    @property
    def away(self) -> frozenset[int]:
        return self.drained | self.lost


def looked(config: Config, before: Mapping[str, Look]) -> dict[str, Look]:
    """What the disks have of each model. May take long."""
    return {
        each.name: look(each.path, each.versions, handler_files(each.handler, each.handler_path), before.get(each.name))
        for each in config.model
    }


def rested(config: Config, before: Mapping[str, Look]) -> dict[str, Look]:
    """Looks again while a model has no version that is whole and at rest: somebody may be copying."""
    looks = looked(config, before)
    for _ in range(LOOKS):
        if all(any(version.is_whole for version in each.versions) for each in looks.values()):
            break
        time.sleep(REST_S)
        looks = looked(config, looks)
    return looks


def completed(facts: Facts, footprints: Footprints, served: Sequence[Mapping[str, Any]] = ()) -> Facts:
    """With what follows from the looks. What is neither there nor served is forgotten; what a model needs stays."""
    looks = facts.looks
    served_paths = {each["path"] for each in served}
    paths = served_paths | {each.path for look in looks.values() for each in look.versions}
    first = {path: digest for path, digest in facts.first.items() if path in paths}
    needs = {key: need for key, need in facts.needs.items() if key[1] in paths}
    broken = {key: why for key, why in facts.broken.items() if key[0] in paths}
    for model in facts.config.model:
        for version in looks[model.name].versions:
            if version.is_whole:
                first.setdefault(version.path, version.files.digest)
            is_copied = not version.is_whole and version.path not in served_paths  # and may grow
            if is_copied or (model.name, version.path) not in needs:
                need = footprints.need(model, version.files.digest, version.files.nbytes)
                needs[model.name, version.path] = need
    return replace(facts, first=first, needs=needs, broken=broken)


def reloaded(before: Config, source: Path) -> Config:
    """What the file has now. Raises `InvalidConfig`."""
    config = load(source)
    if (config.pool, config.device) != (before.pool, before.device):
        raise InvalidConfig("[pool] or [[device]] has changed, which needs a new pool: stop this one and start it anew")
    return config


def restarted(facts: Facts, slots: Sequence[int]) -> Facts:
    """A GPU that was lost and is there again is used again."""
    counts = {slot: facts.generations.get(slot, 0) + 1 for slot in slots}
    return replace(facts, generations={**facts.generations, **counts}, lost=facts.lost.difference(slots))
