"""What no outcome may depend on, otherwise than it is."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from golden.program import Program
from pool.core.policy import ModelPolicy

__all__ = ["AS_IT_IS", "Twist", "other_batches"]


@dataclass(frozen=True, slots=True)
class Twist:
    """The core's chance, how large batches are, how fast models run, who is up first.

    `burst`: jobs that come at once are told before one dispatch.
    """

    seed: int = 0
    batch: float = 1.0
    speed: float = 1.0
    uneven_boot: bool = False
    burst: bool = False


AS_IT_IS = Twist()


def other_batches(program: Program, factor: float) -> Mapping[str, ModelPolicy]:
    models = program.policy.models
    if factor == 1.0:
        return models
    return {
        name: model
        if model.allowed_batch_sizes or model.max_batch == 1
        else replace(model, max_batch=max(2, int(factor * model.max_batch)))
        for name, model in models.items()
    }
