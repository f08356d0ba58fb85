"""What `Client.status` and `Client.models` return, and what `--json` prints. Times end in `_s` and are seconds."""

from collections.abc import Sequence
from typing import Any, TypedDict


class SlotRecord(TypedDict):
    slot: int
    device: str  # its label, such as "cpu:0"
    uuids: Sequence[str]
    # Of each its uuid, used_bytes, total_bytes, utilization (%), temperature (°C); None: NVML does not tell.
    gpus: list[dict[str, Any]]
    pid: int | None  # of its worker
    state: str  # a name of `pool.core.slots.SlotState`
    for_s: float
    models: list[str]  # that its worker has loaded
    versions: dict[str, list[str]]  # of the models that it is to have: the version, and a digest of the files
    failed: dict[str, str]  # models that it cannot load, and why
    doing: str
    busy: int  # lanes
    jobs: int  # that it has answered
    restarts: int
    deaths: dict[str, int]  # by cause
    why: str  # it is not READY


class LoadRecord(TypedDict):
    """What a model has to do, counted since the pool's start."""

    name: str
    state: str  # READY, LOADING or FAILED
    why: str  # it is FAILED
    waiting: int
    oldest_s: float  # of those that wait
    running: int
    done: int
    cancelled: int
    failed: int
    errors: dict[str, int]  # by their class
    recent_errors: dict[str, int]  # of the last minute, as the next three
    rate: float  # jobs a second
    p50_s: float | None  # of run times
    p99_s: float | None
    refused: dict[str, int]  # before they were queued, by the error
    joined: int  # jobs that shared a run
    run_s: float
    run_times: list[int]  # a histogram: [i] counts runs of less than 2^i µs
    slots: list[int]


class Status(TypedDict):
    pool: dict[str, Any]  # pid, release, endpoint, state, uptime_s
    slots: list[SlotRecord]
    away: list[int]  # slots that are drained, or have lost their GPU
    models: list[LoadRecord]
    missing: dict[str, str]  # models without a version that can be served, and why
    changes: list[dict[str, Any]]  # what, progress, lines
    queue: dict[str, int]  # jobs, bytes, max_jobs, max_bytes
    clients: int
    door: dict[str, Any]  # pid, addresses
    deaths: list[dict[str, Any]]  # the last ones: slot, ago_s, why


class ModelRecord(TypedDict):
    """What a model takes and gives."""

    name: str
    path: str
    version: str
    batching: str
    is_stateful: bool
    signatures: dict[str, dict[str, Any]]  # records of `pool.wire.signatures.Signature`
    left_out: dict[str, str]  # signatures that cannot be served, and why
    notes: list[str]
    slots: list[int]  # that serve it
    why: str  # none will
