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
    return run(settings, Path(path) if path else None, embedded)


@click.command()
@config_option
@click.option("--explain", metavar="KEY", help="Only say what a key means, such as model.max_batch.")
@as_json
def check(config: Path | None, explain: str | None, as_json: bool) -> None:
    """Read the configuration and show what would run where. Nothing is started, and TensorFlow is not imported."""
    from pool.config import explain as explained
    from pool.devices.monitor import Monitor
    from pool.endpoint import own
    from pool.plan.placement import size
    from pool.serve.start import planned_at_start

    if explain is not None:
        click.echo(explained(explain))
        return
    path, settings = read_config(config)
    with closing(Monitor()) as monitor:
        plan = planned_at_start(settings, monitor)
    endpoint = settings.pool.endpoint or own(os.environ, os.getuid())
    models, rows, needs = [], [], {}
    for name, model in plan.models.items():
        told = plan.settings(name)
        needs[name], source = plan.facts.needs[told["path"]]
        slots = [slot for slot in plan.slots if name in plan.names(slot)]
        about = {"name": name, "path": told["path"], "version": told["version"], "slots": slots}
        models.append({**about, "replicas": model.replicas, "nbytes": needs[name], "source": source})
        rows.append((name, size(needs[name]), source, ", ".join(map(str, slots)), told["path"]))
    seats, places = [], []
    for slot, device in enumerate(plan.facts.devices):
        names = plan.names(slot)
        planned = sum(needs[name] for name in names) if device.memory_bytes else 0
        seats.append({"slot": slot, **asdict(device), "models": names, "planned_bytes": planned})
        sizes = (size(device.memory_bytes), size(planned))
        places.append((slot, device.label, device.name, *sizes, ", ".join(names) or "–"))
    missing = [*plan.missing.values()]
    if as_json:
        echo_json({"config": path, "endpoint": endpoint, "slots": seats, "models": models, "missing": missing})
    else:
        click.echo(f"configuration: {path or 'none'}\nendpoint: {endpoint}\n")
        console().print(table((">SLOT", "DEVICE", "NAME", ">MEMORY", ">PLANNED", "MODELS"), places), "")
        console().print(table(("MODEL", ">NEEDS", "FROM", "SLOTS", "PATH"), rows), *missing, sep="\n")
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
