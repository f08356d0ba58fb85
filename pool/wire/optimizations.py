"""What may make a model quicker, as it is asked for and as it was decided."""

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["GRAPPLER", "Optimization", "OptimizationSettings"]

GRAPPLER = (
    "arithmetic_optimization",
    "common_subgraph_elimination",
    "constant_folding",
    "debug_stripper",
    "dependency_optimization",
    "function_optimization",
    "implementation_selector",
    "layout_optimizer",
    "loop_optimization",
    "pin_to_host_optimization",
    "remapping",
    "scoped_allocator_optimization",
    "shape_optimization",
)
"""The passes of TensorFlow's `RewriterConfig` that can be chosen: "on", "off" or "aggressive"."""


@dataclass(frozen=True, slots=True)
class OptimizationSettings:
    """`grappler`: passes of `GRAPPLER`. `tolerance`: relative to the largest value of an output; None: of each kind."""

    freeze: bool = False
    grappler: Mapping[str, str] | None = None
    xla: bool = False
    mixed_precision: bool = False
    tolerance: float | None = None

    @property
    def kinds(self) -> tuple[str, ...]:
        """The names of those that are asked for, in the order in which they are tried."""
        asked = {
            "freeze": self.freeze,
            "grappler": bool(self.grappler),
            "xla": self.xla,
            "mixed_precision": self.mixed_precision,
        }
        return tuple(name for name, wanted in asked.items() if wanted)


@dataclass(frozen=True, slots=True)
class Optimization:
    """What a worker decided about one of them, and why."""

    kind: str
    kept: bool
    why: str
