"""Which pools a command is about, where several are given, or a cluster of them.

a command that asks, and ends         all: each is shown in its turn, under its endpoint
one that runs jobs, or lists models   all of them, as one client
one that changes something,           one: who gives several is told to choose
or has no end, or makes a file
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import click

from pool import Client
from pool.cli.failure import CommandFailed
from pool.cli.options import print_json
from pool.endpoint import CLUSTER_SCHEME, ENDPOINT_VARIABLE
from pool.errors import PoolError
from pool.wire.texts import printable

__all__ = ["answers", "are_several", "is_of_several", "named", "one_pool", "show_each"]

Told = TypeVar("Told")


def named(endpoints: Sequence[str]) -> list[str]:
    """Those that are given, else those of $POOL_ENDPOINT, of which there may be none."""
    told = os.environ.get(ENDPOINT_VARIABLE, "").split(",")
    return list(dict.fromkeys(endpoints)) or [part.strip() for part in told if part.strip()]


def are_several(pools: Sequence[str]) -> bool:
    return len(pools) > 1 or any(each.startswith(CLUSTER_SCHEME) for each in pools)


def one_pool(endpoints: Sequence[str], what: str = "") -> str | None:
    """The only one that is given; None for what $POOL_ENDPOINT says. Raises `UsageError` where there are more.

    `what`: is about one pool, if the whole command is not.
    """
    found = named(endpoints)
    if not are_several(found):
        return found[0] if endpoints else None
    context = click.get_current_context()
    others = any(param.name == "cluster" for param in context.command.params)
    raise click.UsageError(
        f"{what or f'`{context.command_path}`'} is about one pool, and {', '.join(found)}"
        f" {'are several' if len(found) > 1 else 'stands for all pools of a cluster'};"
        f" choose one with --endpoint{', or give --cluster' if others and not what else ''}."
    )


def is_of_several(client: Client) -> bool:
    return client.pools != (client,)


def answers(client: Client, ask: Callable[[Client], Told]) -> Iterator[tuple[str, Told | PoolError]]:
    """What each pool answers, with its endpoint. All are asked at once, so that those that are away take no longer."""
    pools = client.pools
    threads = ThreadPoolExecutor(len(pools))
    try:
        for each, asked in [(each, threads.submit(ask, each)) for each in pools]:
            try:
                yield each.endpoint, asked.result()
            except PoolError as error:
                yield each.endpoint, error
    finally:
        threads.shutdown(wait=False)  # the end of the client ends what they ask


def show_each(
    client: Client,
    ask: Callable[[Client], Told],
    show: Callable[[Told], None],
    values: Callable[[Told], object] | None,
) -> list[Told]:
    """Shows what each pool answers, or prints its `values` as JSON. Returns the answers.

    A lone pool is shown as it is, and its error is raised. Of several, each has a title, or one line of JSON, and who
    gives no answer is named on standard error. Raises `CommandFailed` where none gives one.
    """
    several = is_of_several(client)
    found: list[Told] = []
    for endpoint, told in answers(client, ask):
        if isinstance(told, PoolError):
            if not several:
                raise told
            if values is not None:
                print_json({"endpoint": endpoint, "answer": None, "error": str(told)}, indent=None)
            click.echo(f"pool: {printable(endpoint)}: {printable(str(told))}", err=True)
            continue
        if values is not None:
            answer = values(told)
            print_json({"endpoint": endpoint, "answer": answer, "error": None}, None) if several else print_json(answer)
        else:
            if several:
                click.secho(("\n" if found else "") + printable(endpoint), bold=True)
            show(told)
        found.append(told)
    if not found:
        raise CommandFailed("none of these pools gives an answer")
    return found
