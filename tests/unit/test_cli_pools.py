"""What each command does that is given several pools: those of all commands, so that a new one must choose."""

from collections.abc import Iterator

import click
import pytest

from pool import Client
from pool.cli import pool as group
from pool.cli.options import IMPATIENT
from support.commands import in_process

A, B = "ipc:///nowhere/a.sock", "ipc:///nowhere/b.sock"

EACH = {  # is shown in its turn
    "status": [],
    "health": [],
    "explain": ["7"],
    "placement": ["m"],
    "logs": [],
}
TOGETHER = {  # as one client has them
    "wait": ["--timeout", "0.1"],
    "models": [],
    "submit": ["m"],
    "bench run": ["m"],
    "bench sweep": ["m", "--rate", "1,2"],
    "bench open-loop": ["m", "--rate", "1"],
}
ONE = {
    "load": ["m", "stub:echo"],
    "unload": ["m"],
    "reload": [],
    "drain": ["0"],
    "undrain": ["0"],
    "restart": ["0"],
    "stop": [],
    "top": [],
    "metrics": [],
    "bench compare": ["m"],
    "status --watch": [],
    "logs --follow": [],
}
OWN_RULE = {"gateway"}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POOL_ENDPOINT", raising=False)
    monkeypatch.setitem(IMPATIENT, "connect_timeout", 0.1)
    for module in ("submit", "bench", "health"):
        monkeypatch.setattr(f"pool.cli.{module}.Client", _quick)


def _quick(endpoints: "list[str] | None", **_: float) -> Client:
    return Client(endpoints, connect_timeout=0.1, reconnect_timeout=0.0)


def commands(of: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    for name in of.list_commands(click.Context(of)):
        command = of.get_command(click.Context(of), name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{path}{name} ")
        else:
            yield f"{path}{name}", command


def test_each_command_that_speaks_to_a_pool_has_its_rule() -> None:
    speaks = {path for path, command in commands(group) if {"--endpoint"} & {o for p in command.params for o in p.opts}}
    ruled = {name.partition(" --")[0] for name in (*EACH, *TOGETHER, *ONE)}
    assert speaks - OWN_RULE == ruled


@pytest.mark.parametrize("name", ONE)
def test_what_is_about_one_pool_is_never_done_to_the_first_of_several(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    argv = [*name.split(), *ONE[name]]
    given = in_process(*argv, "--endpoint", A, "--endpoint", B)
    monkeypatch.setenv("POOL_ENDPOINT", f"{A},{B}")
    told = in_process(*argv)
    monkeypatch.setenv("POOL_ENDPOINT", "pool+ray://auto")
    clusters = in_process(*argv), in_process(*argv, "--endpoint", "pool+ray://10.0.0.1:6379")
    for done in (given, told, *clusters):
        assert (done.status, done.out) == (2, ""), done
        assert "is about one pool" in done.err
        assert "choose one with --endpoint" in done.err
    for done in (given, told):
        assert f"{A}, {B}" in done.err
    assert all("all pools of a cluster" in done.err for done in clusters)
    with_option = name in ("reload", "drain", "undrain", "stop")
    assert ("or give --cluster" in given.err) is with_option


@pytest.mark.parametrize("name", ONE)
def test_one_of_them_may_be_chosen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same pool twice is one pool."""
    for module in ("load", "drain", "restart", "reload", "stop"):
        monkeypatch.setattr(f"pool.cli.{module}.Client", _quick)
    monkeypatch.setenv("POOL_ENDPOINT", f"{A},{B}")
    done = in_process(*name.split(), *ONE[name], "--endpoint", A, "--endpoint", A)
    assert done.status == 1, done
    assert "is about one pool" not in done.err


@pytest.mark.parametrize("name", [*EACH, *TOGETHER])
def test_several_pools_that_are_away_are_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    argv = [*name.split(), *(EACH | TOGETHER)[name]]
    given = in_process(*argv, "--endpoint", A, "--endpoint", B)
    monkeypatch.setenv("POOL_ENDPOINT", f"{A},{B}")
    told = in_process(*argv)
    for done in (given, told):
        assert (done.status, done.out) == (1, ""), done
        assert A in done.err
        assert B in done.err
