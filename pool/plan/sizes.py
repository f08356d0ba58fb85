"""How much of a device each model is planned with, and who says so."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from pool.plan.footprints import fingerprint, footprint
from pool.plan.placement import model_bytes
from pool.wire.worker_messages import ModelSettings

__all__ = ["Size", "SizeSource", "Sizes", "find_size"]

SizeSource = Literal["memory", "a former run", "its files"]


@dataclass(frozen=True, slots=True)
class Size:
    """`source`: the key `memory`, what its worker took in a former run once warm, or the bytes of its weights."""

    size_bytes: int
    source: SizeSource


Sizes: TypeAlias = Mapping[str, Size]


def find_size(model: ModelSettings, memory: int | None, lanes: int, state: Path | None) -> Size:
    """`memory`: what the configuration says, or None. Reads the disk."""
    if memory is not None:
        return Size(memory, "memory")
    learned = None if state is None else footprint(state, fingerprint(model, lanes))
    return Size(model_bytes(model.path), "its files") if learned is None else Size(learned, "a former run")
