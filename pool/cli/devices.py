"""`pool devices`: what there is to serve on. Needs no running pool."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import click
from rich.table import Table

from pool.cli.check import slots_table
from pool.cli.options import as_json, print_json
from pool.cli.start import settings_of
from pool.devices import (
    DeviceList,
    Discovery,
    Gpu,
    PlannedDevice,
    PlannedDeviceList,
    UsableGpu,
    discover_gpus,
    resolve_devices,
    visible_gpus,
)
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
    limits = {name: os.environ.get(name) for name in _LIMITS}
    usable = visible_gpus(discovery.gpus, *limits.values()).gpus
    found = _found(discovery, limits, usable, plan)
    if as_json:
        print_json(found.to_dict())
        return
    if found.gpus:
        show(_table(_listed(found.gpus, usable)))
        click.echo()
    for note in found.notes:
        click.echo(note)
    limit = limits[_LIMITS[0]]
    if limit is not None and usable:
        click.echo(f"{_LIMITS[0]}={limit} lets a pool use {len(usable)} of {count_of(len(found.gpus), 'GPU')}")
    click.echo(f"{count_of(found.cpu_cores, 'CPU core')} may be used")
    labels = ", ".join(device.label for device in found.auto)
    click.echo(f'devices = "auto" makes {count_of(len(found.auto), "slot")}: {labels}')
    if plan is not None:
        click.echo(f"\nplan of {config}:")
        show(slots_table(plan))


def _found(
    discovery: Discovery, limits: Mapping[str, str | None], usable: Sequence[Gpu], plan: Plan | None
) -> DeviceList:
    auto, notes = resolve_devices("auto", discovery, os.environ)
    numbered = tuple(UsableGpu(number, gpu.uuid) for number, gpu in enumerate(usable))
    cores = len(os.sched_getaffinity(0))
    known = (discovery.gpus, discovery.reason, limits, numbered, tuple(auto), cores, tuple(notes))
    if plan is None:
        return DeviceList(*known)
    slots = (PlannedDevice(**asdict(share.device), models=share.models) for share in plan.shares)
    return PlannedDeviceList(*known, tuple(slots))


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
