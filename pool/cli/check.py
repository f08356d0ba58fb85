"""`pool check`: what `pool start` would do, without doing it."""

import json
import os
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table
from rich.text import Text

from pool.cli.explain_key import explain_key
from pool.cli.failure import CommandFailed
from pool.cli.options import CONFIG, as_json, config_option, print_json
from pool.cli.servable import Servable, look_at
from pool.cli.start import described, settings_of
from pool.devices import written
from pool.endpoint import holder, ipc_path
from pool.plan import Plan, make_plan
from pool.processes.gateways import not_installed
from pool.terminal import Column, labelled, new_table, short_uuid, show, size, table
from pool.wire.entries import model_of, version_of
from pool.wire.gateway import GatewaySettings
from pool.wire.worker_messages import TensorFlowSettings

if TYPE_CHECKING:
    from pool.config import Settings

__all__ = ["check", "hints", "slots_table"]


@click.command()
@config_option
@click.option("--explain", metavar="KEY", help="Say what a key of the configuration does instead, such as pool.lanes.")
@as_json
def check(config: Path | None, explain: str | None, as_json: bool) -> None:
    """Read the configuration and print the plan: which model would be served where.

    With --explain it only says what a key does, its default and its range. It starts nothing and imports no TensorFlow.
    Exit status 0: the pool would start. 2: the configuration is refused.
    1: something else that the pool needs is missing.
    """
    if explain is not None:
        explain_key(explain, as_json)
        return
    settings = settings_of(config)
    plan = make_plan(settings, os.environ)
    tensorflow = installed_tensorflow()
    servables = {model.name: look_at(model) for model in plan.models}
    missing = _missing(servables, tensorflow) + _missing_libraries(
        path for share in plan.shares for path in share.tensorflow.op_libraries
    )
    if settings.gateway is not None and (packages := not_installed()):
        missing.append(packages)
    said = hints(settings, plan)
    if as_json:
        print_json(_values(plan, servables, tensorflow, missing, said))
    else:
        _print(config, plan, servables, tensorflow, said)
    if missing:
        raise CommandFailed("this pool would not start: " + "; ".join(missing))
    if not as_json:
        option = "" if config in (None, CONFIG) else f" --config {shlex.quote(str(config))}"
        click.echo(f"\nOK: `pool start{option}` would serve this")


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
    tokens = settings.gateway.tokens if settings.gateway is not None else None
    named = set() if tokens is None else {token.name for token in tokens.tokens}
    unnamed = [client.name for client in settings.client if not client.users and client.name not in named]
    if unnamed and settings.security is None:
        found.append(f"nobody comes as [[client]] {', '.join(unnamed)}: it has no users, no token and no key here")
    pid = holder(ipc_path(plan.endpoint))
    if pid is not None:
        found.append(f"a pool runs at this endpoint now (pid {pid}); `pool stop` ends it")
    return found


def _asks(gateway: GatewaySettings) -> str:
    """Of those who come to it."""
    if gateway.tokens is None:
        return "nobody needs a token"
    names = sorted({token.name for token in gateway.tokens})
    return f"with a token of {', '.join(names)}" if names else "and nobody has a token; `pool gateway token` makes one"


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
    about.add_row("configuration", described(config, plan.settings))
    about.add_row("endpoint", "\n".join((plan.endpoint, *plan.settings.pool.listen)))
    about.add_row("TensorFlow", tensorflow or Text("not installed", "red"))
    if (gateway := plan.settings.gateway_message(plan.endpoint)) is not None:
        about.add_row("gateway", f"{gateway.url}, {_asks(gateway)}")
    about.add_row("lanes", f"{plan.settings.pool.lanes} in each worker")
    show(about)
    click.echo()
    show(slots_table(plan))
    click.echo()
    show(_models(plan, servables))
    click.echo()
    show(_copies(plan))
    if plan.world.here.notes or said:
        click.echo()
    for kind, lines in (("note", plan.world.here.notes), ("hint", said)):
        for line in lines:
            show(Text(f"{kind}: {line}"))


def slots_table(plan: Plan) -> Table:
    named = any(device.kind == "gpu" for device in plan.devices)
    differing = [options_of(plan, slot) for slot in range(len(plan.shares))]
    about_gpus = ["UUID", "NAME", ">MEMORY", ">FREE"] if named else []
    bound = any(plan.cores)
    asked = [*(["CORES"] if bound else []), "MODELS", *(["TENSORFLOW"] if any(differing) else [])]
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
    share, plain = plan.shares[slot], _options(plan.settings.tensorflow.message())
    worker = _options(share.tensorflow)
    found = [_line(key, value) for key, value in worker.items() if value != plain[key]]
    for name, own in share.tensorflow_by_model.items():
        found += [f"{name}: {_line(key, value)}" for key, value in _options(own).items() if value != worker[key]]
    return found


_ZERO = {  # as the file has it
    "per_process_gpu_memory_fraction": "unlimited",
    "intra_op_parallelism_threads": "auto",
    "inter_op_parallelism_threads": "auto",
}


def _options(told: TensorFlowSettings) -> dict[str, object]:
    """What a worker is told, in the words of the configuration."""
    return {key: value or _ZERO.get(key, value) for key, value in asdict(told).items()}


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


def _copies(plan: Plan) -> Table:
    return table(
        plan.copies(),
        Column("MODEL", lambda found: found["model"]),
        Column(">COPIES", lambda found: str(len(found["devices"]))),
        Column("ON", lambda found: ", ".join(found["devices"]), below="WHY NO MORE"),
        Column("WHY NO MORE", lambda found: found["why"]),
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
    gateway = plan.settings.gateway_message(plan.endpoint)
    return {
        "endpoint": plan.endpoint,
        "listen": list(plan.settings.pool.listen),
        "gateway": None if gateway is None else gateway.url,
        "lanes": plan.settings.pool.lanes,
        "tensorflow": tensorflow,
        "slots": [
            {
                "slot": slot,
                **asdict(share.device),
                "cores": list(plan.cores[slot]),
                "models": list(share.models),
                "tensorflow": _options(share.tensorflow),
                "tensorflow_by_model": {name: _options(own) for name, own in share.tensorflow_by_model.items()},
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
        "copies": plan.copies(),
        "problems": list(missing),
        "notes": list(plan.world.here.notes),
        "hints": list(said),
    }
