"""`pool check`: what `pool start` would run where."""

import os
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from pool.cli.asking import as_json, config_option, echo_json, read_config
from pool.cli.screen import show, size, table
from pool.errors import PoolError

__all__ = ["check"]


@click.command()
@config_option
@click.option("--explain", metavar="KEY", help="Only say what a key means, such as model.max_batch.")
@as_json
def check(config: Path | None, explain: str | None, as_json: bool) -> None:
    """Read the configuration and show what would run where. Nothing is started, and TensorFlow is not imported."""
    from pool.config import explain as explained
    from pool.devices import named, slots
    from pool.endpoint import own

    if explain is not None:
        click.echo(explained(explain))
        return
    path, settings = read_config(config)
    devices = slots(settings.pool.devices, os.environ)
    placed = {model.name: named(model.devices, devices) for model in settings.model}
    record: dict[str, Any] = {
        "config": str(path) if path else None,
        "endpoint": settings.pool.endpoint or own(os.environ, os.getuid()),
        "slots": [
            {"slot": slot, **asdict(device), "models": [name for name, where in placed.items() if slot in where]}
            for slot, device in enumerate(devices)
        ],
        "models": [{"name": each.name, "path": each.path, "slots": placed[each.name]} for each in settings.model],
    }
    if as_json:
        echo_json(record)
    else:
        slots_shown = [
            (
                *(
                    each["slot"],
                    each["label"],
                    each["name"],
                    size(each["memory_bytes"]) if each["memory_bytes"] else "–",
                ),
                ", ".join(each["models"]) or "none: no worker is started",
            )
            for each in record["slots"]
        ]
        models = [(each.name, ", ".join(map(str, placed[each.name])), each.path) for each in settings.model]
        click.echo(f"configuration: {path or 'none'}\nendpoint: {record['endpoint']}\n")
        show(table((">SLOT", "DEVICE", "NAME", ">MEMORY", "MODELS"), slots_shown))
        click.echo()
        show(table(("MODEL", "SLOTS", "PATH"), models))
    if find_spec("tensorflow") is None:
        raise PoolError("TensorFlow is not installed here; pip install 'tf-worker-pool[worker]'")
