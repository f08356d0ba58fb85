"""How much of a device each model is planned with, and who says so."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from pool.plan.footprints import fingerprint, footprint
from pool.plan.placement import model_bytes
from pool.wire.worker_messages import ModelSettings

__all__ = ["Size", "SizeSource", "Sizes", "find_sizes"]

SizeSource = Literal["memory", "a former run", "its files"]


@dataclass(frozen=True, slots=True)
class Size:
    """`source`: the key `memory`, what its worker took in a former run once warm, or the bytes of its weights."""

    size_bytes: int
    source: SizeSource


Sizes: TypeAlias = Mapping[str, Size]


def find_sizes(
    models: Iterable[tuple[ModelSettings, int | None]],
    lanes: int,
    state: Path | None,
    former: Sizes | None = None,
) -> Sizes:
    """By name. Each model comes with what `memory` says, or None; `former`: what is known of a running pool's."""
    return {model.name: _size(model, memory, lanes, state, former or {}) for model, memory in models}


def _size(model: ModelSettings, memory: int | None, lanes: int, state: Path | None, former: Sizes) -> Size:
    if memory is not None:
        return Size(memory, "memory")
    known = former.get(model.name)
    if known is not None and known.source != "memory":
        return known
    learned = None if state is None else footprint(state, fingerprint(model, lanes))
    return Size(model_bytes(model.path), "its files") if learned is None else Size(learned, "a former run")
