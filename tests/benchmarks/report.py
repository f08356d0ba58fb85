"""What a run found: one table for people, one file for programs."""

import json
import os
import platform
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.rounds import Spread, ratio, spread
from benchmarks.run import Group, Run

__all__ = ["as_json", "show"]

STYLES = {"met": "green", "missed": "red", "not measured": "yellow"}


def show(run: Run, console: Console) -> None:
    """A ratio is the median of the rounds' ratios, with the lowest and the highest of them."""
    table = Table("what", "way", "figure", "ratio", "to", "aim", "", title="the pool beside the others, in one run")
    for result in run.results:
        aim, measured = result.aim, result.ratio
        shown = ratios(measured) if measured else "–"
        verdict = f"[{STYLES[result.verdict]}]{result.verdict}[/]"
        sign = "≤" if aim.at_most else "≥"
        table.add_row(aim.what, escape(result.note), "", shown, aim.against, f"{sign} {aim.bound:g}", verdict)
    for group in run.groups:
        table.add_section()
        _add(table, group)
    for what, why in run.failures.items():
        table.add_row(what, escape(why), "–", "–", "", "", "[yellow]not measured[/]")
    console.print(table)


def _add(table: Table, group: Group) -> None:
    base = next(iter(group.samples))
    for way, figures in group.samples.items():
        against = ratio(figures, group.samples[base])
        shown = "1" if way == base else ratios(against)
        figure = readable(spread(figures).median, group.unit)
        table.add_row(group.title if way == base else "", way, figure, shown, "" if way == base else base, "", "")


def ratios(measured: Spread) -> str:
    """The median, and the lowest to the highest."""
    return f"{measured.median:.3g} ({measured.low:.3g}–{measured.high:.3g})"


def readable(figure: float, unit: str) -> str:
    """Three digits; seconds in the unit that fits."""
    if unit != "s":
        return f"{figure:,.0f} {unit}"
    for name, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if figure * factor >= 1 or name == "µs":
            return f"{figure * factor:.3g} {name}" if figure * factor < 1000 else f"{figure * factor:.0f} {name}"
    raise AssertionError


def as_json(run: Run) -> str:
    machine = {
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "tensorflow": version("tensorflow"),
        "load": os.getloadavg(),
    }
    results = [
        {
            "aim": result.aim.name,
            "what": result.aim.what,
            "text": result.aim.text,
            "ratio": asdict(result.ratio) if result.ratio else None,
            "verdict": result.verdict,
            "note": result.note,
        }
        for result in run.results
    ]
    groups = [{"title": group.title, "unit": group.unit, "samples": group.samples} for group in run.groups]
    told = {
        "machine": machine,
        "rounds": run.rounds,
        "seconds": run.seconds,
        "aims": results,
        "groups": groups,
        "failures": run.failures,
        "settings": run.settings,
    }
    return json.dumps(told, indent=1)


def write(run: Run, path: Path) -> None:
    path.write_text(as_json(run) + "\n")
