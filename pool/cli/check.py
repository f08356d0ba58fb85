"""`pool check`: what `pool start` would do, without doing it."""

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table
from rich.text import Text

from pool.cli.failure import CommandFailed
from pool.cli.options import as_json, config_option, print_json
from pool.cli.servable import Servable, look_at
from pool.cli.start import settings_of
from pool.devices import written
from pool.endpoint import holder, ipc_path
from pool.plan import Plan, make_plan
from pool.terminal import Column, labelled, new_table, short_uuid, show, size, table
from pool.wire.entries import model_of, version_of

if TYPE_CHECKING:
    from pool.config import Settings

__all__ = ["check", "hints", "slots_table"]


@click.command()
@config_option
@as_json
def check(config: Path | None, as_json: bool) -> None:
    """Read the configuration and print the plan: which model would be served where.

    Starts nothing and imports no TensorFlow. Exit status 0: the pool would start. 2: the configuration is refused.
    1: something else that the pool needs is missing.
    """
    settings = settings_of(config)
    plan = make_plan(settings, os.environ)
    tensorflow = installed_tensorflow()
    servables = {model.name: look_at(model) for model in plan.models}
    missing = _missing(servables, tensorflow) + _missing_libraries(
        path for share in plan.shares for path in share.session.op_libraries
    )
    said = hints(settings, plan)
    if as_json:
        print_json(_values(plan, servables, tensorflow, missing, said))
    else:
        _print(config, plan, servables, tensorflow, said)
    if missing:
        raise CommandFailed("this pool would not start: " + "; ".join(missing))
    if not as_json:
        click.echo(f"\nOK: `pool start{'' if config is None else f' --config {config}'}` would serve this")


def installed_tensorflow() -> str | None:
    """Its version in this environment, which is the workers' too; asked of the packages, never of TensorFlow."""
    if find_spec("tensorflow") is None:
        return None
    for name in ("tensorflow", "tensorflow-cpu", "tf-nightly"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return "of unknown version"


def hints(settings: "Settings", plan: Plan) -> list[str]:
    """What is allowed, and may not be what was meant."""
    found = []
    slots = len(set(plan.devices))
    replicas = {model.replicas for model in settings.model if model.devices == "auto"}
    for number in sorted(replicas - {slots}):
        models = [model.name for model in settings.model if model.devices == "auto" and model.replicas == number]
        where = f'devices = "auto" puts {_each_of(models)} on {number} of {slots} devices'
        found.append(f'{where}; devices = "all" puts a model on every one')
    idle = dict.fromkeys(share.device.label for share in plan.shares if not share.models)
    if idle:
        found.append(f"no worker is started on {', '.join(idle)}: no model is placed there")
    if any(device.kind == "gpu" for device in plan.devices):
        unsaid = [
            model.name
            for model in settings.model
            if not model.path.startswith("stub:")
            and any(plan.sizes[entry].source == "its files" for entry in plan.settled[model.name])
        ]
        if unsaid:
            found.append(f"placed by the size of their weights, for `memory` is not set: {', '.join(unsaid)}")
    pid = holder(ipc_path(plan.endpoint))
    if pid is not None:
        found.append(f"a pool runs at this endpoint now (pid {pid}); `pool stop` ends it")
    return found


def _each_of(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"each of {', '.join(names)}"


def _missing(servables: dict[str, Servable], tensorflow: str | None) -> list[str]:
    found = [f"model {name}: {servable.problem}" for name, servable in servables.items() if servable.problem]
    if tensorflow is None and any(servable.needs_tensorflow for servable in servables.values()):
        found.append("TensorFlow is not installed: pip install 'tf-worker-pool[worker]'")
    return found


def _missing_libraries(paths: Iterable[str]) -> list[str]:
    return [
        f"op_libraries of [tensorflow]: there is no file {path}"
        for path in dict.fromkeys(paths)
        if not os.path.isfile(path)
    ]


def _print(
    config: Path | None, plan: Plan, servables: dict[str, Servable], tensorflow: str | None, said: Sequence[str]
) -> None:
    about = new_table(["", ""])
    about.add_row("configuration", "the built-in demo" if config is None else str(config))
    about.add_row("endpoint", "\n".join((plan.endpoint, *plan.settings.pool.listen)))
    about.add_row("TensorFlow", tensorflow or Text("not installed", "red"))
    about.add_row("lanes", f"{plan.settings.pool.lanes} in each worker")
    show(about)
    click.echo()
    show(slots_table(plan))
    click.echo()
    show(_models(plan, servables))
    if plan.notes or said:
        click.echo()
    for kind, lines in (("note", plan.notes), ("hint", said)):
        for line in lines:
            show(Text(f"{kind}: {line}"))


def slots_table(plan: Plan) -> Table:
    named = any(device.kind == "gpu" for device in plan.devices)
    differing = [options_of(plan, slot) for slot in range(len(plan.shares))]
    about_gpus = ["UUID", "NAME", ">MEMORY", ">FREE"] if named else []
    bound = any(plan.cores)
    asked = [*(["CORES"] if bound else []), "MODELS", *(["SESSION"] if any(differing) else [])]
    table = new_table(["SLOT", "DEVICE", *about_gpus, *asked])
    for slot, (share, options, cores) in enumerate(zip(plan.shares, differing, plan.cores, strict=True)):
        device = share.device
        uuids = ", ".join(map(short_uuid, device.uuids)) or "–"
        about = [uuids, device.name, size(device.memory_bytes), size(device.free_bytes)] if named else []
        about += [written(cores) or "–"] if bound else []
        said = ["\n".join(options) or "–"] if any(differing) else []
        table.add_row(str(slot), device.label, *about, ", ".join(share.models) or "–", *said)
    return table


def options_of(plan: Plan, slot: int) -> list[str]:
    """In what the Sessions of a slot's worker are unlike those of `[tensorflow]`, a line each."""
    share, plain = plan.shares[slot], asdict(plan.session)
    found = [_line(key, value) for key, value in asdict(share.session).items() if value != plain[key]]
    for name, session in share.sessions.items():
        worker = asdict(share.session)
        found += [f"{name}: {_line(key, value)}" for key, value in asdict(session).items() if value != worker[key]]
    return found


def _line(key: str, value: object) -> str:
    return f"{key} = {f'{value:g}' if isinstance(value, float) else json.dumps(value)}"


def _models(plan: Plan, servables: dict[str, Servable]) -> Table:
    known = {name: found for name, found in plan.sizes.items() if found.size_bytes}
    return table(
        plan.models,
        Column("MODEL", lambda model: labelled(model.name, labels_of(plan, model.name))),
        Column(">SIZE", lambda model: size(known[model.name].size_bytes if model.name in known else None)),
        Column("AS IN", lambda model: known[model.name].source if model.name in known else ""),
        Column("SLOTS", lambda model: ", ".join(map(str, slots_of(plan, model.name)))),
        Column("IS", lambda model: _is(servables[model.name])),
        Column("PATH", lambda model: model.path, below="IS"),
    )


def slots_of(plan: Plan, name: str) -> list[int]:
    return [slot for slot, models in enumerate(plan.placement) if name in models]


def labels_of(plan: Plan, name: str) -> list[str]:
    versions = plan.policy.versions.get(model_of(name))
    return [] if versions is None else versions.of(version_of(name))


def _is(servable: Servable) -> Text:
    return Text(servable.kind, "red" if servable.problem else "")


def _values(
    plan: Plan, servables: dict[str, Servable], tensorflow: str | None, missing: Sequence[str], said: Sequence[str]
) -> dict[str, Any]:
    return {
        "endpoint": plan.endpoint,
        "listen": list(plan.settings.pool.listen),
        "lanes": plan.settings.pool.lanes,
        "tensorflow": tensorflow,
        "slots": [
            {
                "slot": slot,
                **asdict(share.device),
                "cores": list(plan.cores[slot]),
                "models": list(share.models),
                "tensorflow": asdict(share.session),
                "tensorflow_by_model": {name: asdict(session) for name, session in share.sessions.items()},
            }
            for slot, share in enumerate(plan.shares)
        ],
        "models": [
            {
                "name": model.name,
                "labels": labels_of(plan, model.name),
                "path": model.path,
                "size_bytes": plan.sizes[model.name].size_bytes,
                "size_source": plan.sizes[model.name].source,
                "slots": slots_of(plan, model.name),
                "kind": servables[model.name].kind,
                "problem": servables[model.name].problem or None,
            }
            for model in plan.models
        ],
        "problems": list(missing),
        "notes": list(plan.notes),
        "hints": list(said),
    }
