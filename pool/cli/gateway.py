"""`pool gateway`: HTTP for a pool that runs. `pool gateway token`: who may come."""

import logging
import os
import socket
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import click

from pool import Client, logs
from pool.cli.failure import CommandFailed
from pool.cli.group import Group
from pool.cli.options import endpoints_option, gateway_config_option, log_options
from pool.cli.pools import are_several, named
from pool.cli.start import failed, settings_of
from pool.clock import Alarms
from pool.config import tokens_path, with_gateway
from pool.endpoint import DEFAULT_NAME
from pool.errors import InvalidConfig
from pool.kept import WrongTokens, add_token
from pool.logs import about
from pool.loop import Loop, Watch
from pool.processes.gateways import Gateways, address_of, listen, not_installed
from pool.serve import SignalPipe
from pool.wire.gateway import GatewaySettings

__all__ = ["gateway"]

log = logging.getLogger("pool")

END_S = 1.0  # for processes that were told to end before


@click.group(cls=Group, invoke_without_command=True, subcommand_metavar="[COMMAND]")
@gateway_config_option
@endpoints_option
@click.option("--listen", metavar="ADDRESS:PORT", help="Where to listen. Default: 127.0.0.1:8000.")
@click.option("--processes", type=click.IntRange(1), metavar="N", help="How many processes share the socket.")
@click.option("--tokens", metavar="FILE", help="The tokens of those who may come; `pool gateway token` makes one.")
@click.option("--insecure", is_flag=True, default=None, help="Let other machines come without a token.")
@log_options
@click.pass_context
def gateway(
    context: click.Context,
    config: Path | None,
    endpoints: tuple[str, ...],
    listen: str | None,
    processes: int | None,
    tokens: str | None,
    insecure: bool | None,
    log_level: int,
    log_format: str,
) -> None:
    """Serve HTTP for a pool that runs, or for several, until Ctrl-C or SIGTERM.

    Repeat --endpoint to spread the jobs over several pools. pool+ray://ADDRESS stands for all pools of a Ray cluster.
    The pools need not have started yet. The options win over [gateway] of the configuration. A pool whose configuration
    has [gateway] starts its own gateway, and needs no second one.
    """
    if context.invoked_subcommand is not None:
        return
    given = {"listen": listen, "processes": processes, "tokens": tokens, "insecure": insecure}
    with logs.to_stderr(log_format == "json", log_level, os.environ) as for_programs:
        try:
            _serve(config, endpoints, {key: value for key, value in given.items() if value is not None})
        except Exception as error:
            if not for_programs:
                raise
            sys.exit(failed(error))


@gateway.command()
@click.argument("name")
@click.option("--tokens", type=click.Path(path_type=Path), metavar="FILE", help="Default: [gateway] tokens.")
@gateway_config_option
def token(name: str, tokens: Path | None, config: Path | None) -> None:
    """Make a token for the client NAME, print it, and add its digest to the file of tokens.

    The token is shown once and stored nowhere. `pool reload` makes it valid in a pool that runs.
    """
    path = tokens or (None if config is None else tokens_path(config))
    if path is None:
        raise click.UsageError("name the file with --tokens, or with `tokens` in [gateway] of the configuration")
    try:
        made = add_token(path, name)
    except WrongTokens as error:
        raise CommandFailed(str(error)) from None
    click.echo(made)
    click.echo(f"{path} has the digest of this token; `pool reload` makes it valid", err=True)


def _serve(config: Path | None, endpoints: tuple[str, ...], given: dict[str, object]) -> None:
    settings = with_gateway(settings_of(config), given, "pool gateway", Path.cwd())
    own = settings.pool.endpoint
    told = settings.gateway_message(*(endpoints or ((own,) if own else ())))
    assert told is not None  # it was made just now
    if missing := not_installed():
        raise InvalidConfig(missing)
    pools = named(told.endpoints) or [DEFAULT_NAME]
    if len(pools) > 1 or not are_several(pools):  # a cluster is sought by those who serve
        Client(pools).close()  # what is wrong with one of them is told before anybody can connect
    listener = listen(told.listen)
    if told.processes > 1:
        _serve_together(told, listener, pools)
    else:
        _serve_alone(told, listener, pools)
    log.info("gateway: stopped", extra=about("stopped"))


def _tell_ready(url: str, pools: Sequence[str]) -> None:
    names = ", ".join(pools)
    whose = "the pools" if are_several(pools) else "the pool"
    log.info("ready: %s answers for %s %s", url, whose, names, extra=about("gateway_ready", url=url, endpoint=names))


def _serve_alone(settings: GatewaySettings, listener: socket.socket, pools: Sequence[str]) -> None:
    """In this process."""
    from pool.gateway.main import run  # with uvloop, which `pool gateway token` does not need

    told = replace(settings, listen=address_of(listener))
    run(told, listener, on_serving=lambda: _tell_ready(told.url, pools))


def _serve_together(settings: GatewaySettings, listener: socket.socket, pools: Sequence[str]) -> None:
    """In processes that this one tends. A second signal ends them at once."""
    signals: deque[str] = deque()
    over: list[bool] = []
    with SignalPipe(signals) as pipe, closing(Loop(Watch(), Alarms())) as loop:
        gateways = Gateways(settings, listener, os.environ, loop, lambda: _tell_ready(gateways.url, pools))

        def heed() -> None:
            pipe.drain()
            while signals:
                log.info("gateway: %s came", signals.popleft(), extra=about("stopping"))
                if gateways.stops:
                    gateways.kill()
                else:
                    gateways.stop(lambda: over.append(True))

        loop.register(pipe.fd, heed)
        gateways.start()
        try:
            while not over:
                loop.turn()
        finally:
            gateways.close(END_S)
