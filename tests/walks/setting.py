"""Where a program of the walks happens: placements, policies, and the values that its steps are made of.

What is common is likely, so that most jobs are answered with a result; what is rare stays within reach.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeVar

from pool.core.policy import ModelPolicy, Policy
from pool.wire.independence import Batching
from simulation.plans import model_info

__all__ = [
    "CLIENTS",
    "FORMS",
    "INFOS",
    "MODELS",
    "OTHERS",
    "OUTPUTS",
    "PLACEMENTS",
    "POLICIES",
    "PRIORITIES",
    "ROWS",
    "SETS",
    "TIMEOUTS",
    "VERSIONS",
    "mostly",
]

T = TypeVar("T")


def mostly(common: tuple[T, ...], rare: tuple[T, ...], one_in: int) -> tuple[T, ...]:
    """A table from which one draw in about so many is a rare one."""
    return common * (one_in * len(rare) // len(common)) + rare


INFOS = {
    "pure": model_info("pure"),
    "waits": model_info("waits"),
    "padded": model_info("padded"),
    "counter": model_info("counter", stateful=True),
    "lone": model_info("lone", batchable=False),
}
MODELS = {
    "pure": ModelPolicy(max_batch=8, weight=2.0),
    "waits": ModelPolicy(max_batch=4, batch_wait_s=1.0),
    "padded": ModelPolicy(
        max_batch=16, allowed_batch_sizes=(2, 6, 16), max_jobs=9, max_bytes=150, batching=Batching.AUTO
    ),
}
PLACEMENTS = (
    (("pure",),),
    (("pure", "counter"), ("pure", "waits"), ()),
    (("pure",), ("pure", "counter", "waits"), ("counter", "lone"), ("lone", "padded")),
    (("pure", "padded", "lone"), ("pure", "padded", "lone"), ("pure", "padded", "waits"), ("pure",)),
)
SETS = tuple(sorted({models for placement in PLACEMENTS for models in placement}))
POLICIES = (
    Policy(max_jobs=24, max_bytes=400, default_timeout_s=20.0, hung_floor_s=10.0, models=MODELS),
    Policy(
        max_jobs=24,
        max_attempts=1,
        restart_intensity=1,
        hung_after_s=4.0,
        ready_needs_all=False,
        models=MODELS,
        client_max_jobs=9,
        client_max_bytes=300,
    ),
    Policy(
        max_jobs=60,
        max_bytes=160,
        client_max_bytes=160,
        max_attempts=4,
        restart_intensity=50,
        backoff_max_s=1.0,
        drain_timeout_s=3.0,
        models=MODELS,
    ),
    Policy(
        max_jobs=60,
        silent_after_s=30.0,
        recycle_age_s=40.0,
        recycle_jobs=10,
        recycle_bytes=1 << 30,
        min_ready=2,
        models=MODELS,
    ),
    Policy(
        max_jobs=60,
        client_max_bytes=200,
        max_attempts=3,
        replacement="always",
        recycle_age_s=5.0,
        import_timeout_s=20.0,
        models=MODELS,
    ),
    Policy(max_jobs=60, replacement="off", recycle_jobs=20, min_ready=2, models=MODELS),
    Policy(max_jobs=60, standby=True, restart_intensity=20, restart_period_s=5.0, recycle_jobs=30, models=MODELS),
)
# Not fewer attempts: what a job has lost already would be more than it may.
OTHERS: tuple[Mapping[str, object], ...] = (
    {"max_jobs": 12, "max_bytes": 300},
    *({"max_jobs": 80, "max_bytes": 4000, "client_max_jobs": None},) * 3,
    {"default_timeout_s": 2.0, "hung_after_s": 5.0, "restart_intensity": 3, "backoff_max_s": 0.2},
    {"load_timeout_s": 20.0, "import_timeout_s": 5.0, "ready_needs_all": False, "hung_after_s": None},
    {"models": {}},
    {"replacement": "off", "min_ready": 1},
    {"replacement": "always"},
    {"standby": True},
    {"standby": False},
    {"models": MODELS},
    {"models": {name: ModelPolicy(max_batch=2, batch_wait_s=0.5, weight=0.1, max_jobs=8) for name in ("pure", "lone")}},
    {"models": {name: ModelPolicy(3, 0.0, (1, 3), 5.0, None, 200) for name in ("pure", "waits", "padded")}},
    {"models": {name: ModelPolicy(40, 3.0, (5, 40), 1.0) for name in ("pure", "padded", "counter")}},
)
CLIENTS = mostly((b"a", b"b", b"c"), (b"d", b"e"), 10)
TIMEOUTS = mostly((None, 30.0, 60.0, 300.0), (0.5, 3.0, 3.0, 0.0, math.nan, math.inf, -1.0), 12)
ROWS = (None, 1, 1, 1, 2, 3, 7, 20)
PRIORITIES = mostly((0, 0, 0, 5, 5, -100, 100), (101,), 60)
VERSIONS = mostly((None,), ("served", "served", "served", "served", 1, 2, 3, "stable"), 6)
FORMS = (b"form", b"form", b"other form")
OUTPUTS: tuple[tuple[str, ...] | None, ...] = (None, None, ("y",))
