"""How far a benchmark is, while it runs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, TextColumn

from pool.cli.meter import Show
from pool.cli.tables import progress_console

__all__ = ["progress_bar"]


@contextmanager
def progress_bar() -> Iterator[Callable[[str], Show]]:
    """On stderr, where that is a terminal; gone when it ends. Gives what shows a step, by the step's name."""
    console = progress_console()
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[rate]}"))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=1.0, rate="")

        def of(step: str) -> Show:
            def show(what: str, part: float, rate: float) -> None:
                description = f"{step} {what}" if step else what
                progress.update(task, description=description, completed=part, rate=f"{rate:,.0f} jobs/s")

            return show

        yield of
