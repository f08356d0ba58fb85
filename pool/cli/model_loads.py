"""What waits for each model, and what it costs, as `pool status` shows it."""

from collections.abc import Sequence

from rich.table import Table

from pool.terminal import Column, count_of, labelled, numeric, size, table
from pool.wire.records import LastMinute, ModelLoad

__all__ = ["at_most", "model_loads", "model_notes"]


def model_loads(models: Sequence[ModelLoad]) -> Table:
    """A line a model: `Client.status().models`."""
    return table(
        models,
        Column("MODEL", lambda model: labelled(model.name, model.labels)),
        Column(">QUEUED", lambda model: f"{model.queued_jobs:,}"),
        Column(">RUNNING", lambda model: f"{max(0, model.unanswered_jobs - model.queued_jobs):,}", below=">QUEUED"),
        Column(">JOBS/S", lambda model: numeric(model.last_minute.done / model.last_minute.seconds)),
        Column(">ERRORS", lambda model: f"{model.last_minute.failed:,}", below=">JOBS/S"),
        Column(">P50", lambda model: at_most(model.last_minute, model.last_minute.p50_s)),
        Column(">P99", lambda model: at_most(model.last_minute, model.last_minute.p99_s), below=">P50"),
        Column(">DEVICE TIME", lambda model: f"{numeric(model.device_s)} s"),
        Column(">JOBS' SIZE", lambda model: size(model.bytes), below=">DEVICE TIME"),
        Column(">MAX BATCH", lambda model: str(model.max_batch)),
        Column("TAKES", _takes, below=""),
    )


def at_most(minute: LastMinute, quantile_s: float | None) -> str:
    """`≤ 5 ms`: the end of the bucket that a quantile of the minute is in."""
    if not minute.done or quantile_s is None:
        return ""
    if quantile_s >= 1:
        return f"≤ {quantile_s:.3g} s" if quantile_s < 1000 else f"≤ {quantile_s:,.0f} s"
    return f"≤ {quantile_s * 1000:.3g} ms"


def model_notes(models: Sequence[ModelLoad]) -> list[str]:
    """What the pool has found out about a model that its configuration does not say."""
    notes = []
    for model in models:
        for lowered in model.working_sizes:
            rows = count_of(lowered.rows, "row")
            most = f"not {model.max_batch} (max_batch), for lack of memory"
            notes.append(f"{_named(model, lowered.signature)} runs in batches of {rows}, {most}")
        for signature, why in model.dependent.items():
            notes.append(f"{_named(model, signature)} runs each job alone: {why}")
        for signature, why in model.amiss.items():
            notes.append(f"{_named(model, signature)} failed every warm-up: {why}")
    return list(dict.fromkeys(notes))


def _takes(model: ModelLoad) -> str:
    """The learned cost of the smallest and the largest batch, of the signature that ran most."""
    learned = [cost.sizes for cost in model.costs if cost.sizes]
    if not learned:
        return ""
    sizes = sorted(max(learned, key=lambda each: sum(one.batches for one in each)), key=lambda one: one.rows)
    shown = sizes if len(sizes) < 2 else (sizes[0], sizes[-1])
    return ", ".join(f"{count_of(one.rows, 'row')} {numeric(one.median_s * 1000)} ms" for one in shown)


def _named(model: ModelLoad, signature: str | None) -> str:
    return f"{model.name} {signature or ''}".rstrip()
