"""What a key of `config.toml` does, for `pool check --explain`: the reference page's own words."""

import difflib
from dataclasses import asdict

import click
from rich.text import Text

from pool.cli.options import print_json
from pool.config import RENAMED
from pool.docs import dotted, keys, keys_named
from pool.terminal import new_table, show

__all__ = ["explain_key"]


def explain_key(asked: str, as_json: bool) -> None:
    """All keys of this name. Raises `click.UsageError` with the nearest names where there is none."""
    found = keys_named(asked)
    if not found:
        raise click.UsageError(_unknown(asked))
    if as_json:
        print_json([asdict(key) for key in found])
        return
    for key in found:
        if key is not found[0]:
            click.echo()
        click.echo(f"{key.section} {key.name}")
        rows = new_table(["", ""])
        for title, text in (("takes", key.takes), ("default", key.default), ("means", key.means)):
            rows.add_row(title, Text(text))
        show(rows)


def _unknown(asked: str) -> str:
    name = dotted(asked)
    former = {old: (dotted(old), dotted(old.split()[-1])) for old in RENAMED}
    renamed = [f"{old} is now {RENAMED[old]}" for old, names in former.items() if name in names]
    if renamed:
        return "; ".join(renamed)
    known = [each for key in keys() for each in (dotted(f"{key.section} {key.name}"), key.name)]
    near = " or ".join(dict.fromkeys(difflib.get_close_matches(name, known)))
    return f"no key is called {asked!r}; {f'did you mean {near}?' if near else '`pool help configuration` lists all'}"
