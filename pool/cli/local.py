"""The commands that need no pool: `pool start`, which is one, `check`, `systemd` and `help`."""

import os
import sys
from contextlib import closing
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pool.cli.screen import as_json, config_option, console, echo_json, table
from pool.docs import pages
from pool.errors import PoolError

if TYPE_CHECKING:
    from pool.config import Config

DEMO = Path(__file__).parents[2] / "workers" / "demo"


def read_config(given: Path | None) -> tuple[str | None, "Config"]:
    """The absolute path of the configuration, None for the demo model's, and the configuration."""
    from pool.config import load

    path = given or Path("config.toml")
    return (str(path.absolute()), load(path)) if given or path.is_file() else (None, load(None))


@click.command()
@config_option
@click.option("--embedded", type=int, hidden=True, help="A descriptor; the pool stops at its end of file.")
def start(config: Path | None, embedded: int | None) -> int:
    """Run a pool until Ctrl-C, `pool stop` or SIGTERM.

    Running jobs finish first, for [pool] drain_timeout at most. A second Ctrl-C ends the pool at once.
    """
    from pool.serve.start import run

    path, settings = read_config(config)
    if embedded is None:
        click.echo(f"configuration: {path or 'none'}", err=True)
        if settings.model[0].path == str(DEMO / "digits"):
            program = os.path.relpath(sys.argv[0]) if sys.argv[0].endswith("/pool") else "pool"
            image = os.path.relpath(DEMO / "seven.json")
            click.echo(f"next, in another terminal: {program} submit digits --input pixels=@{image}", err=True)
    return run(settings, embedded)


@click.command()
@config_option
@click.option("--explain", metavar="KEY", help="Only say what a key means, such as model.max_batch.")
@as_json
def check(config: Path | None, explain: str | None, as_json: bool) -> None:
    """Read the configuration and show what would run where. Nothing is started, and TensorFlow is not imported."""
    from pool.config import explain as explained
    from pool.devices import slots
    from pool.devices.monitor import Monitor
    from pool.endpoint import own
    from pool.plan.footprints import NAME, Footprints, demands
    from pool.plan.placement import place, size
    from pool.serve.start import state_folder

    if explain is not None:
        click.echo(explained(explain))
        return
    path, settings = read_config(config)
    sections = [each.model_dump() for each in settings.device]
    with closing(Monitor()) as monitor:
        devices = slots(settings.pool.devices, os.environ, monitor, settings.pool.workers_per_device, sections)
    endpoint = settings.pool.endpoint or own(os.environ, os.getuid())
    wanted, where = demands(settings.model, devices, Footprints(state_folder(settings) / NAME))
    plan = place(wanted, where, {})
    planned = [sum(want.nbytes for want in wanted if want.name in names) for names in plan.values()]
    seats = [
        {"slot": slot, **asdict(device), "models": plan[slot], "planned_bytes": planned[slot]}
        for slot, device in enumerate(devices)
    ]
    models = [
        asdict(want) | {"path": model.path, "slots": [slot for slot, names in plan.items() if want.name in names]}
        for want, model in zip(wanted, settings.model, strict=True)
    ]
    if as_json:
        echo_json({"config": path, "endpoint": endpoint, "slots": seats, "models": models})
    else:
        click.echo(f"configuration: {path or 'none'}\nendpoint: {endpoint}\n")
        shown = [
            (slot, each.label, each.name, size(each.memory_bytes), size(planned[slot]), ", ".join(plan[slot]))
            for slot, each in enumerate(devices)
        ]
        console().print(table((">SLOT", "DEVICE", "NAME", ">MEMORY", ">PLANNED", "MODELS"), shown), "")
        rows = [
            (each["name"], size(each["nbytes"]), each["source"], ", ".join(map(str, each["slots"])), each["path"])
            for each in models
        ]
        console().print(table(("MODEL", ">NEEDS", "FROM", "SLOTS", "PATH"), rows))
    if find_spec("tensorflow") is None:
        raise PoolError("TensorFlow is not installed here; pip install 'tf-worker-pool[worker]'")


@click.command()
@config_option
@click.option("--as", "user", metavar="USER", help="A service of the machine, which runs as this user.")
def systemd(config: Path | None, user: str | None) -> None:
    """Print a unit that has systemd start the pool, watch it and restart it. Its first line says where to put it."""
    from pool.systemd import unit

    path, settings = read_config(config)
    click.echo(unit(os.path.abspath(sys.executable), path, settings.pool.drain_timeout, user, settings.pool.group))


@click.command("help")
@click.argument("page", required=False, type=click.Choice([*pages()]))
def show_page(page: str | None) -> None:
    """Show a page of the documentation, or list the pages."""
    texts = pages()
    if page is None:
        for name, text in texts.items():
            about = text.split("\n\n")[1].replace("\n", " ")
            click.echo(f"pool help {name}\n{click.wrap_text(about, 78, '    ', '    ')}")
        click.echo("\n`pool COMMAND --help` explains a command, `pool check --explain KEY` a key of config.toml.")
    elif sys.stdout.isatty():
        from rich.markdown import Markdown

        on = console()
        with on.capture() as capture:
            on.print(Markdown(texts[page], code_theme="ansi_dark", hyperlinks=False), width=min(on.width, 110))
        click.echo_via_pager(capture.get())
    else:
        click.echo(texts[page], nl=False)
