"""`pool placement`: what of a model runs where."""

from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

import click
from rich.table import Table
from rich.text import Text

from pool import Client
from pool.cli.names import ModelName
from pool.cli.options import IMPATIENT, as_json, endpoints_option
from pool.cli.pools import show_each
from pool.terminal import count_of, new_table, show
from pool.wire.records import ModelCopies, PlacedNode, PlacedRule, PlacedSignature, Placement
from pool.wire.texts import printable

__all__ = ["placement"]

_MOST_NAMED = 5

Told: TypeAlias = tuple[Placement, list[ModelCopies]]


@click.command()
@click.argument("model", type=ModelName())
@click.option("--device", metavar="NAME", help="Ask the worker on this device, as `pool status` shows it, or slot:N.")
@click.option(
    "--timeout", type=float, metavar="SECONDS", help="How long it may take. Default: the pool's default_timeout."
)
@endpoints_option
@as_json
def placement(model: str, device: str | None, timeout: float | None, endpoints: tuple[str, ...], as_json: bool) -> None:
    """Show which devices have MODEL and why no more do, and on which device each of its nodes runs.

    A worker runs each signature once and reports.
    Signatures that may change the model's state are not run. Rules of layer_devices match the names that are shown.
    Of several pools, each is asked.
    """

    def ask(client: Client) -> Told:
        found = client.placement(model, timeout=timeout, device=device)
        return found, [each for each in client.status().copies if each.model == found.model]

    with Client(endpoints or None, **IMPATIENT) as client:
        show_each(client, ask, _show, (lambda told: told[0].to_dict()) if as_json else None)


def _show(told: Told) -> None:
    found, copies = told
    for each in copies:
        where = f"{count_of(len(each.devices), 'device')}: {', '.join(each.devices)}"
        click.echo(f"{each.model} is on {where}; {each.why}")
    click.echo(f"{found.model} in slot {found.slot} ({found.device}), which has {', '.join(found.devices)}")
    for name, signature in sorted(found.signatures.items()):
        click.echo()
        _show_signature(name, signature)
    if found.rules:
        click.echo()
        show(_rules(found.rules))


def _show_signature(name: str, signature: PlacedSignature) -> None:
    counts = Counter(node.device for node in signature.nodes)
    where = ", ".join(f"{count_of(count, 'node')} on {device}" for device, count in sorted(counts.items()))
    show(Text.assemble((name, "cyan"), f": {printable(signature.why or where or 'nothing runs')}"))
    if signature.nodes:
        show(_nodes(signature.nodes))


def _nodes(nodes: Sequence[PlacedNode]) -> Table:
    ruled = any(node.rule is not None for node in nodes)
    table = new_table(["  DEVICE", "OP", "NODE", "FUNCTION", *([">RULE"] if ruled else [])])
    for node in nodes:
        rule = ["–" if node.rule is None else str(node.rule + 1)] if ruled else []
        names = (printable(name) or "–" for name in (node.op, node.node, node.function))
        table.add_row(f"  {node.device}", *names, *rule)
    return table


def _rules(rules: Sequence[PlacedRule]) -> Table:
    table = new_table([">RULE", "LAYERS", "DEVICE", ">MATCHED", ">RAN", "KEPT"])
    for number, rule in enumerate(rules, 1):
        layers = printable(rule.layers)
        table.add_row(str(number), layers, rule.device, str(rule.matched), str(rule.ran), _kept(rule))
    return table


def _kept(rule: PlacedRule) -> Text:
    if rule.kept:
        return Text.assemble(("yes", "green"), _but_for(rule.absent))
    if rule.kept is None:
        return Text("it has no nodes to run")
    elsewhere = ", ".join(f"{printable(each.node)} on {each.device}" for each in rule.elsewhere)
    return Text(f"no: {elsewhere or 'none of its nodes ran'}", "red")


def _but_for(absent: Sequence[str]) -> str:
    if not absent:
        return ""
    more = f" and {len(absent) - _MOST_NAMED} more" if len(absent) > _MOST_NAMED else ""
    return f", except what TensorFlow left out: {', '.join(map(printable, absent[:_MOST_NAMED]))}{more}"
