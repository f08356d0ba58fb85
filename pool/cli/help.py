"""`pool help`: the documentation in the terminal, without a network."""

import difflib
import re
import sys

import click

from pool.cli.screen import console
from pool.docs import pages

__all__ = ["show_page"]

WIDEST = 110  # columns; longer lines are hard to read
LINK = re.compile(r"\[([^\]]+)\]\((\w+)\.md(?:#[\w-]+)?\)")
COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)


@click.command("help")
@click.argument("page", required=False)
def show_page(page: str | None) -> None:
    """Show a page of the documentation, or list the pages."""
    texts = pages()
    if page is None:
        for name, text in texts.items():
            about = text.split("\n\n")[1].replace("\n", " ")
            click.echo(f"pool help {name}\n{click.wrap_text(about, 78, '    ', '    ')}")
        click.echo("\n`pool COMMAND --help` explains a command, `pool check --explain KEY` a key of config.toml.")
        return
    if page not in texts:
        near = difflib.get_close_matches(page, texts, n=1)
        raise click.UsageError(f"no page {page!r}; " + (f"did you mean {near[0]}?" if near else "see `pool help`"))
    if not sys.stdout.isatty():
        click.echo(texts[page], nl=False)
        return
    from rich.markdown import Markdown

    text = LINK.sub(r"\1 (`pool help \2`)", COMMENT.sub("", texts[page]))
    on = console()
    on.width = min(on.width, WIDEST)
    with on.capture() as capture:
        on.print(Markdown(text, code_theme="ansi_dark", hyperlinks=False))
    click.echo_via_pager(capture.get())
