"""`pool devices`: what there is to serve on. Needs no running pool."""

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from pool.cli.check import slots_table
from pool.cli.options import as_json, print_json
from pool.cli.start import settings_of
from pool.devices import Device, Discovery, Gpu, discover_gpus, resolve_devices, visible_gpus
from pool.plan import Plan, make_plan
from pool.terminal import Column, count_of, show, table

__all__ = ["devices"]

_LIMITS = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")


@click.command()
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also show the plan of this config.toml.",
)
@as_json
def devices(config: Path | None, as_json: bool) -> None:
    """Show this machine's GPUs, which of them a pool may use, and the slots that devices = "auto" gives.

    With --config, also show which models would be served on which device. Starts nothing.
    """
    discovery = discover_gpus()
    plan = None if config is None else make_plan(settings_of(config), os.environ, discovery)
    usable = visible_gpus(discovery.gpus, os.environ.get(_LIMITS[0]), os.environ.get(_LIMITS[1])).gpus
    auto, notes = resolve_devices("auto", discovery, os.environ)
    cores = len(os.sched_getaffinity(0))
    if as_json:
        print_json(_values(discovery, usable, auto, notes, cores) | _planned(plan))
        return
    if discovery.gpus:
        show(_table(_listed(discovery.gpus, usable)))
        click.echo()
    for note in notes:
        click.echo(note)
    limit = os.environ.get(_LIMITS[0])
    if limit is not None and usable:
        click.echo(f"{_LIMITS[0]}={limit} lets a pool use {len(usable)} of {count_of(len(discovery.gpus), 'GPU')}")
    click.echo(f"{count_of(cores, 'CPU core')} may be used")
    labels = ", ".join(device.label for device in auto)
    click.echo(f'devices = "auto" makes {count_of(len(auto), "slot")}: {labels}')
    if plan is not None:
        click.echo(f"\nplan of {config}:")
        show(slots_table(plan))


def _planned(plan: Plan | None) -> dict[str, Any]:
    if plan is None:
        return {}
    return {"plan": [{**asdict(share.device), "models": list(share.models)} for share in plan.shares]}


def _listed(gpus: Sequence[Gpu], usable: Sequence[Gpu]) -> list[tuple[str, Gpu]]:
    """Each GPU with the number that `config.toml` knows it by; a dash where the pool may not use it.

    The numbers count the usable ones in the order of CUDA_VISIBLE_DEVICES, MIG instances too.
    """
    numbers = {gpu.uuid: str(number) for number, gpu in enumerate(usable)}
    hidden = [("–", gpu) for gpu in gpus if gpu.uuid not in numbers]
    listed = [(numbers[gpu.uuid], gpu) for gpu in usable] + hidden
    return [(label, each) for number, gpu in listed for label, each in _with_instances(number, gpu)]


def _with_instances(number: str, gpu: Gpu) -> list[tuple[str, Gpu]]:
    """Beneath a GPU in MIG mode, which has no number then, its instances, which have none either."""
    return [(number, gpu)] if gpu.instances is None else [("MIG", gpu), *(("–", each) for each in gpu.instances)]


def _table(gpus: Sequence[tuple[str, Gpu]]) -> Table:
    """Narrow, it has two lines a GPU, because a uuid must be whole to be copied into a configuration."""
    return table(
        gpus,
        Column("GPU", lambda listed: listed[0]),
        Column("NAME", lambda listed: listed[1].name),
        Column("UUID", lambda listed: listed[1].uuid, below="NAME"),
        Column("PCI", lambda listed: _pci(listed[1]), below=">MEMORY USED"),
        Column(">MEMORY USED", lambda listed: _memory(listed[1])),
    )


def _pci(gpu: Gpu) -> str:
    """As `lspci -D` writes it: NVML's domain has eight digits where four say it."""
    domain, _, rest = gpu.pci_bus_id.partition(":")
    return f"{domain[-4:]}:{rest}" if domain.startswith("0000") and len(domain) == 8 else gpu.pci_bus_id or "–"


def _memory(gpu: Gpu) -> str:
    if gpu.memory_bytes is None:
        return "–"
    used = "?" if gpu.memory_used_bytes is None else f"{gpu.memory_used_bytes / 2**30:.1f}"
    return f"{used} of {gpu.memory_bytes / 2**30:.1f} GiB"


def _values(
    discovery: Discovery, usable: Sequence[Gpu], auto: Sequence[Device], notes: Sequence[str], cores: int
) -> dict[str, Any]:
    return {
        "gpus": [asdict(gpu) for gpu in discovery.gpus],
        "reason": discovery.reason,
        "environment": {name: os.environ.get(name) for name in _LIMITS},
        "usable": [{"number": number, "uuid": gpu.uuid} for number, gpu in enumerate(usable)],
        "auto": [asdict(device) for device in auto],
        "cpu_cores": cores,
        "notes": list(notes),
    }
