"""How far a benchmark is, while it runs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, TextColumn

from pool.cli.tables import progress_console

__all__ = ["Bar", "progress_bar"]

# What is done, its length in seconds or jobs: gives what a loop calls with its answers and the seconds since its start.
Bar = Callable[[str, float, int | None], Callable[[int, float], None]]


@contextmanager
def progress_bar() -> Iterator[Bar]:
    """On stderr, where that is a terminal; gone when it ends."""
    console = progress_console()
    columns = (TextColumn("{task.description:<10}"), BarColumn(), TextColumn("{task.fields[rate]}"))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:

        def of(what: str, duration: float, limit: int | None) -> Callable[[int, float], None]:
            task = progress.add_task(what, total=duration if limit is None else limit, rate="")

            def on(jobs: int, elapsed: float) -> None:
                rate = f"{jobs / elapsed:,.0f} jobs/s" if elapsed else ""
                progress.update(task, completed=elapsed if limit is None else jobs, rate=rate)

            return on

        yield of
