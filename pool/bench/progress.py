"""How far a benchmark is, while it runs."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, TextColumn

from pool.bench.meter import Show
from pool.terminal import progress_console

__all__ = ["progress_bar"]


@contextmanager
def progress_bar() -> Iterator[Show]:
    """On stderr, where that is a terminal; gone when it ends."""
    console = progress_console()
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[rate]}"))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=1.0, rate="")
        yield lambda what, part, rate: progress.update(
            task, description=what, completed=part, rate=f"{rate:,.0f} jobs/s"
        )
