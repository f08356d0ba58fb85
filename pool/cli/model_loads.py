"""What waits for each model, and what it costs, as `pool status` shows it."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from pool.terminal import Column, count_of, labelled, numeric, size, table

__all__ = ["at_most", "model_loads", "model_notes"]

Model = Mapping[str, Any]


def model_loads(models: Sequence[Model]) -> Table:
    """A line a model: `Client.status()["models"]`."""
    return table(
        models,
        Column("MODEL", lambda model: labelled(model["name"], model.get("labels", ()))),
        Column(">QUEUED", lambda model: f"{model.get('queued_jobs', 0):,}"),
        Column(
            ">RUNNING",
            lambda model: f"{max(0, model.get('unanswered_jobs', 0) - model.get('queued_jobs', 0)):,}",
            below=">QUEUED",
        ),
        Column(">JOBS/S", lambda model: numeric(model["last_minute"]["done"] / model["last_minute"]["seconds"])),
        Column(">ERRORS", lambda model: f"{model['last_minute']['failed']:,}", below=">JOBS/S"),
        Column(">P50", lambda model: at_most(model["last_minute"], "p50_s")),
        Column(">P99", lambda model: at_most(model["last_minute"], "p99_s"), below=">P50"),
        Column(">DEVICE TIME", lambda model: f"{numeric(model.get('device_s', 0.0))} s"),
        Column(">SIZE", lambda model: size(model.get("bytes")), below=">DEVICE TIME"),
        Column(">MAX BATCH", lambda model: str(model.get("max_batch", ""))),
        Column("TAKES", _takes, below=""),
    )


def at_most(last_minute: Mapping[str, Any], quantile: str) -> str:
    """`≤ 5 ms`: the end of the bucket that a quantile is in."""
    if not last_minute["done"]:
        return ""
    bound_s = last_minute[quantile]
    if bound_s is None:
        return "> 700 s"
    return f"≤ {bound_s:g} s" if bound_s >= 1 else f"≤ {bound_s * 1000:g} ms"


def model_notes(models: Sequence[Model]) -> list[str]:
    """What the pool has found out about a model that its configuration does not say."""
    notes = []
    for model in models:
        for lowered in model.get("working_sizes", ()):
            rows = count_of(lowered["rows"], "row")
            most = f"not {model['max_batch']} (max_batch), for lack of memory"
            notes.append(f"{_named(model, lowered['signature'])} runs in batches of {rows}, {most}")
        for signature, why in model.get("dependent", {}).items():
            notes.append(f"{_named(model, signature)} runs each job alone: {why}")
        for signature, why in model.get("amiss", {}).items():
            notes.append(f"{_named(model, signature)} failed every warm-up: {why}")
    return list(dict.fromkeys(notes))


def _takes(model: Model) -> str:
    """The learned cost of the smallest and the largest batch, of the signature that ran most."""
    learned = [cost["sizes"] for cost in model.get("costs", ()) if cost["sizes"]]
    if not learned:
        return ""
    sizes = sorted(max(learned, key=lambda each: sum(one["batches"] for one in each)), key=lambda one: one["rows"])
    shown = sizes if len(sizes) < 2 else (sizes[0], sizes[-1])
    return ", ".join(f"{count_of(one['rows'], 'row')} {numeric(one['median_s'] * 1000)} ms" for one in shown)


def _named(model: Model, signature: str | None) -> str:
    return f"{model['name']} {signature or ''}".rstrip()
