"""`pool help`: the documentation in the terminal, without a network."""

import difflib
import re
import sys
from typing import ClassVar

import click
from rich.console import Group, JustifyMethod, RenderableType
from rich.markdown import Markdown, TableDataElement
from rich.text import Text

from pool.docs import NoSuchPage, Page, page, pages
from pool.terminal import new_table, plain_console

__all__ = ["help"]

WIDEST = 120  # columns: longer lines are hard to read
_PAGE_LINK = re.compile(r"\[([^\]]+)\]\((\w+)\.md(?:#[\w-]+)?\)")


@click.command()
@click.argument("name", metavar="[PAGE]", required=False)
def help(name: str | None) -> None:  # noqa: A001  # a command is called as its function is
    """Show a page of the documentation, or list the pages.

    A terminal gets the page laid out, in your pager; a pipe gets its Markdown.
    """
    if name is None:
        _list()
        return
    found = _found(name)
    if not sys.stdout.isatty():
        click.echo(found.text.rstrip("\n"))
        return
    # A link to a page becomes the command that shows it.
    text = _PAGE_LINK.sub(r"\1 (`pool help \2`)", found.text)
    _show(_Markdown(text, code_theme="ansi_dark", hyperlinks=False))


class _WholeCell(TableDataElement):
    """A cell that goes on in its next line: a name with an ellipsis cannot be typed."""

    def __init__(self, justify: JustifyMethod) -> None:
        super().__init__(justify)
        self.content.overflow = "fold"


class _Markdown(Markdown):
    elements: ClassVar = {**Markdown.elements, "td_open": _WholeCell, "th_open": _WholeCell}


def _list() -> None:
    parts: list[RenderableType] = []
    for group, found in pages().items():
        rows = new_table(["", ""])
        for each in found:
            rows.add_row(Text(f"  {each.name:<15}", "cyan"), each.about)
        parts += [Text(group, "bold"), rows, Text()]
    _show(Group(*parts, Text("`pool help PAGE` shows a page; `pool COMMAND --help` explains a command.")))


def _show(renderable: RenderableType) -> None:
    """In the pager where the terminal is too low for it."""
    console = plain_console()
    console.width = min(console.width, WIDEST)
    with console.capture() as capture:
        console.print(renderable)
    lines = [line.rstrip() for line in capture.get().splitlines()]
    if console.is_terminal and len(lines) >= console.height:
        click.echo_via_pager("\n".join(lines))
    else:
        click.echo("\n".join(lines))


def _found(name: str) -> Page:
    """Raises `click.UsageError` with the nearest names."""
    wanted = name.lower().removesuffix(".md")
    try:
        return page(wanted)
    except NoSuchPage:
        pass
    group = click.get_current_context().find_root()
    if isinstance(group.command, click.Group) and wanted in group.command.list_commands(group):
        raise click.UsageError(f"no page is called {name!r}; `pool {wanted} --help` explains the command")
    names = [each.name for found in pages().values() for each in found]
    near = [each for each in names if each.startswith(wanted)] or difflib.get_close_matches(wanted, names)
    suggestion = f"did you mean {' or '.join(near)}?" if near else "`pool help` lists all pages"
    raise click.UsageError(f"no page is called {name!r}; {suggestion}")
