"""Arguments that name a model or a slot of a pool. The shell completes them with what the pool has."""

from collections.abc import Iterable

import click
from click.shell_completion import CompletionItem

from pool import Client
from pool.wire.records import Status

__all__ = ["ModelName", "SlotNumber"]

PATIENCE_S = 1.0  # of somebody who has pressed Tab


def _status(context: click.Context) -> Status | None:
    try:
        given = context.params.get("endpoint") or context.params.get("endpoints") or None
        with Client(given, connect_timeout=PATIENCE_S, reconnect_timeout=0.0) as client:
            return client.pools[0].status()
    except Exception:  # whatever it is, there is nothing to complete, and a shell shows no error
        return None


class ModelName(click.types.StringParamType):
    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        found = _status(ctx)
        return _beginning(incomplete, dict.fromkeys(each.model for each in found.models) if found else ())


class SlotNumber(click.IntRange):
    def __init__(self) -> None:
        super().__init__(0)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        found = _status(ctx)
        return _beginning(incomplete, {str(each.slot): each.device for each in found.slots} if found else {})


def _beginning(incomplete: str, names: Iterable[str]) -> list[CompletionItem]:
    helps = names if isinstance(names, dict) else {}
    return [CompletionItem(name, help=helps.get(name)) for name in names if name.startswith(incomplete)]
