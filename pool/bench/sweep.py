"""Runs the loads of a report, one after the other, and shows how far they are."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, TextColumn

from pool.bench.fleet import Fleet
from pool.bench.meter import Show
from pool.bench.report import LoadReport
from pool.terminal import progress_console

__all__ = ["measure", "progress_bar"]


def measure(fleet: Fleet, report: LoadReport) -> None:
    """Until the last one, or what the report finds is the end. The pool is empty between open loops."""
    with progress_bar() as show:
        for load in report.loads:
            step = f"{load.asked:,.4g}{'/s' if load.is_open else ' in flight'} " if report.several else ""

            def told(what: str, part: float, rate: float, step: str = step) -> None:
                show(step + what, part, rate)

            if not report.add(fleet.run(load, told)):
                return


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
