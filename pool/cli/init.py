"""`pool init`: a configuration for the models in a folder, which are found by their names alone."""

import json
from collections.abc import Iterator
from pathlib import Path

import click

from pool.errors import PoolError

SUFFIXES = (".pb", ".meta", ".keras", ".h5")
SHOWN = ("devices", "max_batch", "batch_wait", "device_memory")


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
    """In the order of their paths. Links are not followed, for they may lead in a circle."""
    if any(any(path.glob(f"{inside}saved_model.pb*")) for inside in ("", "[0-9]*/")) or path.suffix in SUFFIXES:
        yield path
    elif path.is_dir() and not path.is_symlink():
        for each in sorted(path.iterdir()):
            yield from models_in(each)
