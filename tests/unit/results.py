"""The result of a job, as a connection makes it of an answer."""

from collections.abc import Mapping
from typing import Any

from pool.client.result import JobResult
from pool.wire.timeline import Timeline

__all__ = ["TOLD", "result_of"]

TOLD = Timeline(7, 0.001, 0.002, 0.003, 0.004, 0.005, rows=3, batch_rows=8, slot=2, device="gpu:1", attempts=1)


def result_of(
    arrays: Mapping[str, Any],
    told: Timeline = TOLD,
    *,
    encode_s: float = 0.0001,
    held_s: float = 0.0,
    wall_s: float = 0.02,
) -> JobResult:
    result = JobResult(arrays)
    result.measured, result.own_rows = (told, 0.0, encode_s, encode_s + held_s, wall_s), None
    return result
