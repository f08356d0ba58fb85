"""The curve of a sweep in a file, drawn by matplotlib, which is the optional extra `plot`."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pool.bench.point import CPU_SHARE
from pool.bench.report import LoadReport
from pool.errors import Incompatible
from pool.terminal import numeric

__all__ = ["drawer"]

FAINT, GRID, GOOD = "#7b848c", "#e3e6e9", "#23835c"
COLORS = {"p99": "#d1495b", "p50": "#1f77b4"}


def drawer() -> Callable[[Path, LoadReport], None]:
    """The function that draws, so that a missing library is found before all else. Raises `Incompatible`."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise Incompatible("--plot needs matplotlib: pip install 'tf-worker-pool[plot]'") from None
    return partial(_draw, Figure(figsize=(9.6, 8.4), dpi=160, layout="constrained"))


def _draw(figure: Any, path: Path, report: LoadReport) -> None:
    """Writes the file, of the kind that its name ends in. Points are joined in the order of their measurement."""
    points, load, highest = report.points, report.loads[0], report.highest
    latency, goodput = figure.subplots(2, 1, height_ratios=(3, 2))
    figure.suptitle(str(report.job), fontsize=15, fontweight="bold")
    latency.set_title(report.about, fontsize=10, color=FAINT, pad=34)  # above the legend
    for name, curve in report.curves.items():
        at, latencies_ms = zip(*curve, strict=True) if curve else ((), ())
        latency.plot(at, latencies_ms, color=COLORS[name], marker="o", label=name)
    latency.axvline(highest, color=GOOD, linestyle="dashed", label=report.limit)
    if report.is_open and load.timeout_s is not None:
        latency.axhline(load.timeout_s * 1000, color=FAINT, linestyle="dotted", label=f"timeout {load.timeout_s:g} s")
    if report.bound_s is not None:
        bound_ms = report.bound_s * 1000
        label = f"bound of the p99, {numeric(bound_ms)} ms"
        latency.axhline(bound_ms, color=COLORS["p99"], linestyle="dotted", label=label)
    latency.set(yscale="log", xlim=(0, highest * 1.05 or 1), xlabel=report.axis, ylabel="latency, ms")
    asked = [point.load.rate or point.load.in_flight for point in points]
    goodput.plot(asked, [point.goodput for point in points], color=GOOD, marker="o", label="goodput")
    goodput.set(ylim=(0, highest * 1.25 or 1), ylabel="answers a second")
    if report.is_open:
        goodput.plot([0, max(asked)], [0, max(asked)], color=FAINT, linestyle="dotted", label="all that was requested")
        limits = [(each.load.rate, each.goodput) for each in points if each.behind or each.cpu_share > CPU_SHARE]
        if limits:
            look = {"facecolor": "white", "edgecolor": GOOD, "zorder": 3}
            goodput.scatter(*zip(*limits, strict=True), **look, label="the sender at its limit")
        goodput.set(xlim=(0, max(asked) * 1.05), xlabel="requested jobs/s")
    else:
        goodput.set_xscale("log", base=2)  # each is twice the one before
        goodput.set(xticks=asked, xlabel="jobs in flight")
        goodput.minorticks_off()
    for axes in (latency, goodput):
        axes.xaxis.set_major_formatter("{x:,g}")
        axes.yaxis.set_major_formatter("{x:,g}")
        axes.grid(visible=True, which="major", color=GRID)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, ncols=5, loc="upper right", bbox_to_anchor=(1, 1.1))
    figure.savefig(path)
