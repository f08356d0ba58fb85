"""Statistics in Triton's form, from what the pool counts of each model.

What the pool does not count is 0: the time of the last job, single executions, and the stages of a job.
"""

from collections.abc import Iterable
from typing import Any

from pool.gateway.inference.descriptions import version_of
from pool.wire.records import Model

__all__ = ["statistics"]

STAGES = ("queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss")


def statistics(models: Iterable[Model]) -> dict[str, Any]:
    return {"model_stats": [_of(model) for model in models]}


def _of(model: Model) -> dict[str, Any]:
    answered = model.scheduling.answered
    done = answered.get("done", 0)
    run = _duration(done, model.scheduling.device_s)
    return {
        "name": model.model,
        "version": version_of(model),
        "last_inference": 0,
        "inference_count": done,
        "execution_count": 0,
        "inference_stats": {
            "success": run,
            "fail": _duration(sum(answered.values()) - done, 0.0),
            **{stage: _duration(0, 0.0) for stage in STAGES},
            "compute_infer": run,
        },
        "response_stats": {},
        "batch_stats": [],
        "memory_usage": [],
    }


def _duration(count: int, seconds: float) -> dict[str, int]:
    return {"count": count, "ns": round(seconds * 1e9)}
