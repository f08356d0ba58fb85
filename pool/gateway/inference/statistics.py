"""Statistics in Triton's form, from what the pool counts of each version's jobs since its start.

What the pool does not count is 0: the time of the last job, of failed ones, and of copies to and from the device.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from pool.gateway.catalogue import numbers
from pool.wire.records import Histogram, Metrics, Model, VersionCounts

__all__ = ["statistics"]

NONE = {"count": 0, "ns": 0}


def statistics(models: Iterable[Model], pools: Collection[Metrics]) -> dict[str, Any]:
    """Of all pools together."""
    found: dict[tuple[str, int], list[VersionCounts]] = {}
    for model in models:
        for number in numbers(model):
            found.setdefault((model.model, number), []).extend(_counts(model.name, number, pools))
    return {"model_stats": [_of(name, number, counts) for (name, number), counts in found.items()]}


def _counts(name: str, number: int, pools: Iterable[Metrics]) -> list[VersionCounts]:
    """Jobs that never ran count for each of its versions."""
    found = [each for metrics in pools for of in metrics.models if of.name == name for each in of.versions]
    return [each for each in found if each.version in (None, number)]


def _of(name: str, number: int, counts: Sequence[VersionCounts]) -> dict[str, Any]:
    success = _times(counts, "total")
    failed = sum(sum(each.jobs.values()) - each.jobs.get("done", 0) for each in counts)
    waits = [_times(counts, name) for name in ("queue", "batch_wait")]
    return {
        "name": name,
        "version": str(number),
        "last_inference": 0,
        # A job without rows is one of them.
        "inference_count": max(success["count"], round(sum(each.batch_rows.sum for each in counts))),
        "execution_count": sum(sum(each.batch_rows.counts) for each in counts),
        "inference_stats": {
            "success": success,
            "fail": {"count": failed, "ns": 0},
            "queue": {"count": success["count"], "ns": sum(wait["ns"] for wait in waits)},
            "compute_input": NONE,
            "compute_infer": _times(counts, "run"),
            "compute_output": NONE,
            "cache_hit": NONE,
            "cache_miss": NONE,
        },
        "response_stats": {},
        "batch_stats": [],
        "memory_usage": [],
    }


def _times(counts: Iterable[VersionCounts], name: str) -> dict[str, int]:
    times: list[Histogram] = [getattr(each, name) for each in counts]
    return {"count": sum(sum(each.counts) for each in times), "ns": round(sum(each.sum for each in times) * 1e9)}
