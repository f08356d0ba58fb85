"""The commands that need no pool: `pool start`, which is one, `door`, `token`, `init`, `check` and so on."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pool.cli.screen import as_json, config_option, console, echo_json, endpoint_option, table
from pool.devices.monitor import Monitor
from pool.docs import pages
from pool.errors import InvalidConfig, PoolError

if TYPE_CHECKING:
    from pool.config import Config

DEMO = Path(__file__).parents[2] / "workers" / "demo"
SUFFIXES = (".pb", ".meta", ".keras", ".h5")
SHOWN = ("devices", "max_batch", "batch_wait", "device_memory")


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
@endpoint_option
@click.option("--parent", type=int, hidden=True, help="The pid of the pool that the door ends with.")
def door(config: Path | None, endpoint: str | None, parent: int | None) -> int:
    """Serve HTTP and gRPC at the addresses of [door], in front of a pool that runs or comes.

    `pool start` does that by itself, where [door] has an address. Several doors may stand before one pool.
    """
    from pool.config.sections import Door
    from pool.door.server import run

    if parent is not None:  # which gives what it has checked, and not what the file may have become
        return run(Door.model_construct(**json.load(sys.stdin)), endpoint, parent)
    return run(read_config(config)[1].door, endpoint, None)


@click.group()
def token() -> None:
    """Manage the tokens that callers of the door show."""


@token.command("new")
@click.argument("name")
@config_option
def new_token(name: str, config: Path | None) -> None:
    """Make a token for NAME and print it. The file of [door] tokens keeps its digest; an older one of NAME ends."""
    from pool.door.tokens import new

    path = read_config(config)[1].door.tokens
    if path is None:
        raise InvalidConfig('[door] has no tokens; write such as tokens = "tokens.txt"')
    click.echo(new(Path(path), name))


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path), default=".")
def init(folder: Path) -> None:
    """Write a config.toml for the models in FOLDER, or in this one. One that is there stays as it is."""
    from pool.config.sections import Model

    path, models = folder / "config.toml", [*models_in(folder)]
    if path.exists():
        raise PoolError(f"{path} is there already and stays as it is; move it away to have a new one")
    if not models or models == [folder]:
        what = "is a model itself; give the folder above it" if models else "holds no model"
        raise PoolError(f"{folder} {what}; a model is a SavedModel's folder, or a file of {', '.join(SUFFIXES)}")
    fields = [(key, Model.model_fields[key]) for key in SHOWN]
    keys = [f"# {key} = {json.dumps(field.default)}  # {field.description}\n" for key, field in fields]
    lines = ["# For `pool start`. `pool check --explain KEY` says more of a key, such as model.max_batch.\n"]
    for inside in (model.relative_to(folder) for model in models):
        is_short = inside.suffix in SUFFIXES and [each.stem for each in models].count(inside.stem) == 1
        name = "-".join([*inside.parts[:-1], inside.stem if is_short else inside.name])
        written = (json.dumps(text, ensure_ascii=False) for text in (name, str(inside)))
        lines += ["\n[[model]]\nname = {}\npath = {}\n".format(*written), *keys]
    with path.open("x", encoding="utf-8", errors="backslashreplace") as file:
        file.writelines(lines)
    click.echo(f"{path} has {len(models)} models; next: pool check --config {path}, pool start --config {path}")


def models_in(path: Path) -> Iterator[Path]:
    """In the order of their paths. Without links, which may lead in a circle, and what is hidden, as .venv."""
    if any(any(path.glob(f"{inside}saved_model.pb*")) for inside in ("", "[0-9]*/")) or path.suffix in SUFFIXES:
        yield path
    elif path.is_dir() and not path.is_symlink():
        for each in sorted(path.glob("[!.]*")):
            yield from models_in(each)


@click.command()
@config_option
@click.option("--explain", metavar="KEY", help="Only say what a key means, such as model.max_batch.")
@as_json
def check(config: Path | None, explain: str | None, as_json: bool) -> None:
    """Read the configuration and show what would run where. Nothing is started, and TensorFlow is not imported."""
    from pool.config import explain as explained
    from pool.endpoint import own
    from pool.plan.placement import size
    from pool.plan.wanted import models_of
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
        told = plan.settings(name) or {"path": model.path, "version": ""}
        needs[name], source = plan.facts.needs.get((model.name, told["path"]), (0, ""))
        seated = [slot for slot, told in plan.slots.items() if name in told["models"]]
        about = {"name": name, "path": told["path"], "version": told["version"], "slots": seated}
        models.append({**about, "replicas": model.replicas, "nbytes": needs[name], "source": source})
        rows.append((name, size(needs[name]), source, ", ".join(map(str, seated)), told["path"]))
    seats, places = [], []
    for slot, device in enumerate(plan.facts.devices):
        names = [*models_of(plan.slots.get(slot))]
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
