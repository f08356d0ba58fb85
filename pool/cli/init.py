"""`pool init`: a first `config.toml`, for the models that lie in a folder."""

import json
import os
import re
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import click

from pool.cli.failure import CommandFailed
from pool.cli.options import CONFIG
from pool.terminal import count_of, size
from pool.wire.model_files import Format, ModelFiles, NotServed, files_of, is_whole, look, may_be_model
from pool.wire.texts import is_utf8, printable

__all__ = ["init"]

MOST_ENTRIES = 20_000  # that are looked at: somebody may name the root of a disk
SHOWN = 5  # of what was left out, where nothing else was found

_BEGINS = {  # of the files of a model, where the first bytes tell
    **dict.fromkeys((".pb", ".graphdef"), b"\n"),
    ".pbtxt": b"node",
    ".keras": b"PK",
    **dict.fromkeys((".h5", ".hdf5"), b"\x89HDF"),
}
_UNTOLD = {
    Format.FROZEN_GRAPH: "its inputs and outputs; they are its placeholders, and what no other operation reads",
    Format.META_GRAPH: "its inputs and outputs; they are its placeholders, and what no other operation reads",
    Format.KERAS: "whether it has a model, or weights alone, which cannot be served",
}

_HEAD = """\
# Written by `pool init`. `pool check` shows what would run where, and `pool start` serves it.
# A key that is left out has its default. `pool check --explain KEY` says what it does.
#
# Files do not tell everything. `pool models` shows each model's signatures once it runs. The pool finds out by itself
# whether rows may share a batch, and how much GPU memory a model takes. `device_memory` says so before the first run.
"""


@click.command()
@click.argument("folder", default=".", type=click.Path(exists=True, file_okay=False, path_type=Path))
def init(folder: Path) -> None:
    """Write a config.toml for the models in FOLDER, by default in this folder.

    Finds SavedModels of TensorFlow 1 and 2, folders of numbered versions, frozen graphs, meta graphs and Keras files.
    Comments in the file say what could not be told. It imports no TensorFlow, and never overwrites a file.
    """
    if os.path.lexists(CONFIG):
        raise CommandFailed(_THERE)
    models: dict[str, tuple[Path, ModelFiles]] = {}
    left_out = []
    for path, found in _look_through(folder):
        if isinstance(found, ModelFiles):
            models[_name(path, models)] = path, found
        else:
            left_out.append(f"{_shown(path)} {found}")
    if not models:
        none = f"no model was found in {_shown(folder)}, so nothing is written"
        raise CommandFailed("; ".join([none, *left_out[:SHOWN]]))
    sections = [_section(name, path, found) for name, (path, found) in models.items()]
    comments = "".join(f"# Left out: {text}.\n" for text in left_out)
    _write("\n".join([_HEAD, *sections, comments]))
    click.echo(f"wrote {CONFIG}: {count_of(len(models), 'model')} ({', '.join(models)})")
    click.echo("next: pool check")


_THERE = f"{CONFIG} is there already, and stays as it is; move it away, or run this in another folder"


def _write(text: str) -> None:
    try:
        with CONFIG.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise CommandFailed(_THERE) from None


def _look_through(folder: Path) -> Iterator[tuple[Path, ModelFiles | str]]:
    """What may be served, or why it may not. Nothing within a model, hidden, or behind a link is looked at further."""
    folders, seen = deque([folder]), 0
    while folders:
        here = folders.popleft()
        try:
            yield here, look(str(here))
            continue
        except NotServed:
            entries = [] if here.is_symlink() and here != folder else sorted(here.iterdir())
        except OSError as error:
            yield here, f"cannot be read: {error.strerror}"
            continue
        seen += len(entries)
        if seen > MOST_ENTRIES:
            yield here, f"and what follows was not looked at, after {MOST_ENTRIES} files; give a folder of models alone"
            return
        if Path(here, "pyvenv.cfg") in entries:
            continue
        for each in entries:
            if each.name.startswith("."):
                continue
            if each.is_dir():
                folders.append(each)
            elif may_be_model(each.name):
                yield each, _of_file(each)


def _of_file(path: Path) -> ModelFiles | str:
    try:
        found = look(str(path))
        begins = _BEGINS.get(path.suffix.lower(), b"")
        with path.open("rb") as file:
            if file.read(len(begins)) != begins:
                return f"does not begin as {found.format.value} does"
    except NotServed as error:
        return str(error)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if not is_utf8(str(path.absolute())):
        return "has a name that is not UTF-8; rename it, or write a link to it"
    return found


def _name(path: Path, taken: dict[str, tuple[Path, ModelFiles]]) -> str:
    """What the folder or the file is called, as far as a model may be called so."""
    whole = Path(os.path.abspath(path))  # of "." too
    stem = whole.name if whole.is_dir() else whole.stem
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", stem).strip("-.") or "model"
    names = [name, *(f"{name}-{number}" for number in range(2, len(taken) + 3))]
    return next(each for each in names if each not in taken)


def _section(name: str, path: Path, found: ModelFiles) -> str:
    about = [f"{found.format.value}, {_size(path)} of files"]
    if found.version is not None:
        about.append(f'Version {found.version} is served, the newest; versions = "all" serves each one')
    about += [f"{number} is newer, and holds no whole model" for number in found.incomplete]
    if found.format is Format.SAVED_MODEL and not is_whole(found.path):
        about.append("Some of its files are missing")
    if found.format in _UNTOLD:
        about.append(f"Not told: {_UNTOLD[found.format]}")
    lines = "".join(f"# {line[:1].upper()}{line[1:]}.\n" for line in about)
    return f"[[model]]\n{lines}name = {_quoted(name)}\npath = {_quoted(os.path.relpath(path))}\n"


def _size(path: Path) -> str:
    try:
        return size(sum(size_bytes for _, size_bytes, _ in files_of(str(path))))
    except OSError as error:
        return f"an unknown size ({error.strerror})"


def _quoted(text: str) -> str:
    """A text of TOML: as JSON has it, but for one character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _shown(path: Path) -> str:
    """On one line, whatever its name is."""
    return printable(str(path), keep="")
