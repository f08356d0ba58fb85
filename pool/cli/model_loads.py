"""What waits for each model, and what it costs, as `pool status` shows it."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from pool.terminal import count_of, fitting, labelled, new_table, numeric, size

__all__ = ["model_loads", "model_notes"]

Model = Mapping[str, Any]


def model_loads(models: Sequence[Model]) -> Table:
    """A line a model: `Client.status()["models"]`."""
    return fitting(_table(models, costs=True), lambda: _table(models, costs=False))


def model_notes(models: Sequence[Model]) -> list[str]:
    """What the pool has found out about a model that its configuration does not say."""
    notes = []
    for model in models:
        for lowered in model.get("working_sizes", ()):
            rows = count_of(lowered["rows"], "row")
            most = f"not max_batch's {model['max_batch']}, for lack of memory"
            notes.append(f"{_named(model, lowered['signature'])} runs in batches of {rows}, {most}")
        for signature, why in model.get("dependent", {}).items():
            notes.append(f"{_named(model, signature)} runs each job alone: {why}")
        for signature, why in model.get("amiss", {}).items():
            notes.append(f"{_named(model, signature)} failed whenever it was warmed up: {why}")
    return list(dict.fromkeys(notes))


def _table(models: Sequence[Model], *, costs: bool) -> Table:
    headings = ["MODEL", ">QUEUED", ">RUNNING", ">SIZE", ">DEVICE TIME", ">MAX BATCH"]
    table = new_table([*headings, *(["TAKES"] if costs else [])])
    for model in models:
        queued, unanswered = model.get("queued_jobs", 0), model.get("unanswered_jobs", 0)
        table.add_row(
            labelled(model["name"], model.get("labels", ())),
            f"{queued:,}",
            f"{max(0, unanswered - queued):,}",
            size(model.get("bytes")),
            f"{numeric(model.get('device_s', 0.0))} s",
            str(model.get("max_batch", "–")),
            *([_takes(model) or "–"] if costs else []),
        )
    return table


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
