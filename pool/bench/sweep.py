"""Runs the loads of a report, one after the other; the pool is empty between open loops."""

from pool.bench.fleet import Fleet
from pool.bench.progress import progress_bar
from pool.bench.report import LoadReport

__all__ = ["measure"]


def measure(fleet: Fleet, report: LoadReport) -> None:
    """Until the last one, or what the report finds is the end."""
    with progress_bar() as show:
        for load in report.loads:
            step = f"{load.asked:,.4g}{'/s' if load.is_open else ' in flight'} " if report.several else ""
            measured = fleet.run(load, lambda what, part, rate, step=step: show(step + what, part, rate))  # type: ignore[misc]
            if not report.add(load, measured):
                return
