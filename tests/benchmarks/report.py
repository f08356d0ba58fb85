"""What a run found: one table for people, one file for programs."""

import json
import os
import platform
import subprocess
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.aims import AIMS, Result
from benchmarks.rounds import Spread, ratio, spread
from benchmarks.run import Group, Run

__all__ = ["as_json", "readable", "results", "show", "write"]

ABSENT = {
    "TensorFlow Serving": "no package of PyPI or Debian has its server; tensorflow-serving-api is the client alone"
}
"""Peers that belong here and are missing."""
STYLES = {"met": "green", "missed": "red", "not measured": "yellow"}


def show(run: Run, console: Console) -> None:
    """A ratio is the median of the rounds' ratios, with the lowest and the highest of them."""
    missed = [result.aim.name for result in results(run) if result.ratio is None]
    title = f"the pool beside the others, {'without ' + ', '.join(missed) if missed else 'the whole run'}"
    table = Table("what", "way", "figure", "ratio", "to", "aim", "", title=title)
    for result in results(run):
        aim, measured = result.aim, result.ratio
        shown = ratios(measured) if measured else "–"
        verdict = f"[{STYLES[result.verdict]}]{result.verdict}[/]"
        sign = "≤" if aim.at_most else "≥"
        table.add_row(aim.what, aim.way, escape(result.note), shown, aim.against, f"{sign} {aim.bound:g}", verdict)
    for group in run.groups:
        table.add_section()
        _add(table, group)
    for what, why in {**run.failures, **ABSENT}.items():
        table.add_row(what, escape(why), "–", "–", "", "", "[yellow]not measured[/]")
    console.print(table)


def results(run: Run) -> list[Result]:
    """Of every aim, in the table's order: what this run did not come to is no secret."""
    found = {result.aim.name: result for result in run.results}
    return [found.get(name, Result(aim, None, "no part of this run")) for name, aim in AIMS.items()]


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
    aims = [
        {
            "aim": result.aim.name,
            "what": result.aim.what,
            "way": result.aim.way,
            "text": result.aim.text,
            "ratio": asdict(result.ratio) if result.ratio else None,
            "verdict": result.verdict,
            "note": result.note,
        }
        for result in results(run)
    ]
    groups = [{"title": group.title, "unit": group.unit, "samples": group.samples} for group in run.groups]
    told = {
        "machine": machine,
        "began": run.began,
        "commit": _commit(),
        "whole": all(aim["ratio"] for aim in aims),
        "rounds": run.rounds,
        "seconds": run.seconds,
        "aims": aims,
        "groups": groups,
        "failures": {**run.failures, **ABSENT},
        "settings": run.settings,
    }
    return json.dumps(told, indent=1)


def _commit() -> str:
    """Of the working tree that was measured; with a + where it was changed, empty where nobody knows."""
    try:
        argv = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty=+", "--exclude=*"]
        return subprocess.run(argv, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def write(run: Run, path: Path) -> None:
    path.write_text(as_json(run) + "\n")
