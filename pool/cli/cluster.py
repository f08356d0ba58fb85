"""A command for all pools of a Ray cluster: `--cluster` has each machine run it for its own pool, in turn."""

import contextlib
import json
import re
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TextIO

import click
from click.core import ParameterSource

from pool.cli.failure import CommandFailed
from pool.errors import InvalidConfig, PoolUnreachable
from pool.terminal import count_of

if TYPE_CHECKING:
    from pool.cluster import Cluster, Kept

__all__ = ["AUTO", "ClusterCommand", "an_address", "cluster_option", "connected", "title"]

AUTO = "auto"
ELSEWHERE = ("--endpoint", "--watch")  # whose pool is another, or whose output has no end


def an_address(_context: click.Context, _option: click.Parameter, given: str | None) -> str | None:
    """An option that may be without its value takes what stands after it."""
    if given is not None and given != AUTO and not re.fullmatch(r".+:\d{1,5}", given):
        raise click.BadParameter(f"{given!r:.80} is not HOST:PORT; write what is no address before this option")
    return given


cluster_option = click.option(
    "--cluster",
    metavar="[ADDRESS]",
    is_flag=False,
    flag_value=AUTO,
    callback=an_address,
    help="All pools of a Ray cluster. Default: $RAY_ADDRESS, else the cluster of this machine.",
)


class ClusterCommand(click.Command):
    """`rolling`: it changes a pool, so the machines after one that failed are left alone. `adds`: to its arguments."""

    def __init__(self, *args: Any, rolling: bool = False, adds: Sequence[str] = (), **options: Any) -> None:
        super().__init__(*args, **options)
        self._rolling, self._adds = rolling, adds
        cluster_option(self)

    def invoke(self, ctx: click.Context) -> Any:
        address = ctx.params.pop("cluster")
        if address is None:
            return super().invoke(ctx)
        for param in self.params:
            if param.opts[0] in ELSEWHERE and ctx.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE:
                raise click.UsageError(f"--cluster and {param.opts[0]} are not for one command; leave one of them out")
        assert ctx.info_name is not None
        self._on_each(address, [ctx.info_name, *self._adds, *_again(ctx)], as_json=ctx.params["as_json"])
        return None

    def _on_each(self, address: str, arguments: Sequence[str], as_json: bool) -> None:
        """Raises `CommandFailed` where one has failed."""
        failed, out = [], sys.stdout
        with connected(address) as cluster:
            machines = cluster.machines()
            if machines is None:
                raise PoolUnreachable("the cluster's pools are being looked for; try again in a few seconds")
            for number, kept in enumerate(machines):
                status, said, error = _asked(cluster, kept, arguments)
                _show(kept, status, said, error, as_json, out)
                if status:
                    failed.append(title(kept))
                if status and self._rolling:
                    left = len(machines) - number - 1
                    rest = f"; not asked after it: {count_of(left, 'machine')}" if left else ""
                    raise CommandFailed(f"{title(kept)} failed{rest}")
        if failed:
            raise CommandFailed(f"{len(failed)} of {count_of(len(machines), 'machine')} failed: {', '.join(failed)}")


@contextlib.contextmanager
def connected(address: str) -> "Iterator[Cluster]":
    """Ray comes with the first. All that it prints goes to standard error: standard output may be JSON.

    Raises `InvalidConfig` where it is not installed, `PoolUnreachable`.
    """
    try:
        from pool.cluster import Cluster
    except ModuleNotFoundError as error:
        raise InvalidConfig(f"a cluster needs more: pip install 'tf-worker-pool[worker,ray]' ({error})") from None
    with contextlib.redirect_stdout(sys.stderr), Cluster(address) as cluster:
        yield cluster


def title(kept: "Kept") -> str:
    """`10.0.0.1 (node 3fa2b1c9)`"""
    return f"{kept.host} (node {kept.node[:8]})"


def _asked(cluster: "Cluster", kept: "Kept", arguments: Sequence[str]) -> tuple[int, str, str]:
    """As `Cluster.command`. A machine that says nothing is told as one that has failed.

    With what has failed comes why the last pool there ended, as long as none serves after it.
    """
    if kept.told is None:
        missing = kept.reason or "Ray has not started its pool yet; it may wait for GPUs that other jobs have"
        return 1, "", f"{missing}\n"
    try:
        status, said, error = cluster.command(kept, arguments)
    except PoolUnreachable as silence:
        status, said, error = 1, "", f"{silence}\n"
    return status, said, f"{error}the pool before: {kept.reason}\n" if status and kept.reason else error


def _show(kept: "Kept", status: int, said: str, error: str, as_json: bool, out: TextIO) -> None:
    if as_json:
        try:
            answer = json.loads(said) if said.strip() else None
        except ValueError:  # it was killed as it spoke
            answer, error = None, f"{error}its answer is no JSON: {said!r:.200}"
        told = {"host": kept.host, "node": kept.node, "endpoint": kept.told.endpoint if kept.told else None}
        line = {**told, "exit_status": status, "answer": answer, "error": error.strip() or None}
        click.echo(json.dumps(line), file=out)
        return
    if said:
        click.secho(title(kept), file=out, bold=True)
        click.echo(said, file=out)  # and an empty line, before the next machine
    # Named there too: standard output may be elsewhere.
    for text in error.splitlines():
        click.echo(f"{title(kept)}: {text}", err=True)


def _again(ctx: click.Context) -> Iterator[str]:
    """What was given to the command, as it would be typed."""
    for param in ctx.command.params:
        assert param.name is not None
        if param.name == "cluster" or ctx.get_parameter_source(param.name) is not ParameterSource.COMMANDLINE:
            continue
        value = ctx.params[param.name]
        if isinstance(param, click.Argument):
            yield from map(str, value if isinstance(value, tuple) else (value,))
        else:
            yield param.opts[0] if param.is_flag else f"{param.opts[0]}={value}"  # type: ignore[attr-defined]
