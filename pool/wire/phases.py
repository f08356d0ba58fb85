"""How far a worker is, and what its lanes run: what the core hears of it."""

from dataclasses import dataclass
from enum import Enum

__all__ = ["LaneProgress", "Phase"]


class Phase(Enum):
    """What a worker is doing; each has its own time budget."""

    IMPORTING = "importing"
    AWAITING_DEVICE = "waiting for"  # the memory of its GPUs, before it touches them
    LOADING = "loading"
    WARMING_UP = "warming up"
    SERVING = "serving"
    STANDING_BY = "standing by"


@dataclass(frozen=True, slots=True)
class LaneProgress:
    lane: int
    batch: int
    age_s: float
