"""`pool models`: what can be asked of the pool."""

import click
from rich.console import Group, RenderableType
from rich.text import Text

from pool import Client
from pool.cli.options import IMPATIENT, as_json, endpoints_option, print_json
from pool.terminal import new_table, show
from pool.wire.entries import is_entry
from pool.wire.readiness import left_out
from pool.wire.records import Model
from pool.wire.signatures import DEFAULT_SIGNATURE

__all__ = ["models"]


@click.command()
@endpoints_option
@as_json
def models(endpoints: tuple[str, ...], as_json: bool) -> None:
    """Each model with its signatures, their inputs and outputs.

    Of several pools: the models of all that are there.
    """
    with Client(endpoints or None, **IMPATIENT) as client:
        found = client.models()
    if as_json:
        print_json([model.to_dict() for model in found])
        return
    for number, model in enumerate(found):
        if number:
            click.echo()
        show(_shown(model))


def _shown(model: Model) -> RenderableType:
    title = Text.assemble((model.name, "bold"), f"  {_where(model)}")
    if is_entry(model.name):
        title.append("".join(f"  {label}" for label in model.labels))
        title.append("  without `version`" if model.default else "")
    elif versions := model.versions:
        title.append(f"  version{'s' * (len(versions) > 1)} {', '.join(map(str, versions))}")
    for each in model.failover:
        title.append(f"  on {each.device} while {each.home} is gone", "yellow")
    without = [Text(f"  {line}", "red") for line in left_out(model.unloadable)]
    if model.path is None:
        return Group(title, *(without or [Text("  no worker has loaded it; `pool status` says why")]))
    title.append(f"  handled by {model.handler}" if model.handler else "")
    home = model.scheduling.affinity
    if model.stateful:
        where = "" if home is None else f" its jobs stay in slot {home};"
        title.append(f"  stateful:{where} a job that may have started is not run again")
    elif home is not None:
        title.append(f"  a session wrote its variables, so all its jobs run in slot {home}")
    for made in model.optimizations:
        decided = "kept" if made.kept else "dropped"
        title.append(f"\n  slot {made.slot}: {made.kind} {decided}: {made.why}", "dim")
    for remark in model.remarks:
        title.append(f"\n  {remark}", "yellow")
    table = new_table(["", "", ""])
    signatures = sorted(model.signatures.items(), key=lambda item: item[0] != DEFAULT_SIGNATURE)
    for name, signature in signatures:
        for side, specs in (("in", signature.inputs), ("out", signature.outputs)):
            tensors = Text("\n").join([Text(f"{key}: {spec}") for key, spec in specs.items()] or [Text("–")])
            table.add_row(Text(f"  {name}", "cyan") if side == "in" else "", side, tensors)
    runs = [Text(f"  {name} runs {each.rows}", "dim") for name, each in signatures]
    failed = [Text(f"  {name} failed every warm-up: {each.amiss}", "yellow") for name, each in signatures if each.amiss]
    failed += [Text(f"  {name} is not offered: {why}", "yellow") for name, why in model.left_out.items()]
    return Group(title, *without, Text(f"  {model.path}", "dim"), table, *runs, *failed)


def _where(model: Model) -> str:
    slots, ready = model.slots, model.ready_slots
    numbers = f"slot{'' if len(slots) == 1 else 's'} {', '.join(map(str, slots))}" if slots else "in no slot"
    if slots and model.scheduling.leaving:
        return f"{numbers}, takes no jobs any more"
    if not ready:
        return f"{numbers}, not ready"
    return numbers if len(ready) == len(slots) else f"{numbers} (ready: {', '.join(map(str, ready))})"
