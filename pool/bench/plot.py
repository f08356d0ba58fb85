"""The latency–throughput curve as a picture. matplotlib is the optional extra `plot`."""

from collections.abc import Callable
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING

from pool.bench.point import limit, most
from pool.bench.report import LoadReport
from pool.errors import PoolError
from pool.terminal import numeric

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["drawer"]

FAINT, GRID = "#7b848c", "#e3e6e9"
P50, P99, GOOD = "#1f77b4", "#d1495b", "#23835c"

Drawer = Callable[[Path, LoadReport], None]


def drawer() -> Drawer:
    """The function that draws, so that a missing library is found before anything is measured. Raises `PoolError`."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise PoolError("--plot needs matplotlib: pip install 'tf-worker-pool[plot]'") from None
    return _draw


def _draw(path: Path, report: LoadReport) -> None:
    """Writes the file, of the kind that its name ends in. Points are joined in the order of their measurement."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 8.4), dpi=160, layout="constrained")
    latency, goodput = figure.subplots(2, 1, height_ratios=(3, 2))
    figure.suptitle(report.title, fontsize=15, fontweight="bold")
    latency.set_title(report.about, fontsize=10, color=FAINT, pad=34)  # above the legend
    _latency(latency, report)
    _goodput(goodput, report)
    for axes in (latency, goodput):
        axes.xaxis.set_major_formatter("{x:,g}")
        axes.yaxis.set_major_formatter("{x:,g}")
        axes.grid(visible=True, which="major", color=GRID)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, ncols=5, loc="upper right", bbox_to_anchor=(1, 1.1))
    figure.savefig(path)


def _latency(axes: "Axes", report: LoadReport) -> None:
    answered = [point for point in report.points if not isnan(point.latency_s["p50"])]
    goodputs = [point.goodput for point in answered]
    for name, color in (("p99", P99), ("p50", P50)):
        axes.plot(goodputs, [point.latency_s[name] * 1000 for point in answered], color=color, marker="o", label=name)
    axes.axvline(most(report.points), color=GOOD, linestyle="dashed", label=limit(report.points))
    timeout_s, bound_s = report.loads[0].timeout_s if report.is_open else None, report.bound_s
    if timeout_s is not None:
        axes.axhline(timeout_s * 1000, color=FAINT, linestyle="dotted", label=f"timeout {timeout_s:g} s")
    if bound_s is not None:
        axes.axhline(
            bound_s * 1000, color=P99, linestyle="dotted", label=f"bound of the p99, {numeric(bound_s * 1000)} ms"
        )
    axes.set_yscale("log")
    axes.set_xlim(0, most(report.points) * 1.05 or 1)
    axes.set_xlabel("goodput, answers/s" if report.is_open else "throughput, answers/s")
    axes.set_ylabel("latency, ms")


def _goodput(axes: "Axes", report: LoadReport) -> None:
    asked, goodputs = [point.load.asked for point in report.points], [point.goodput for point in report.points]
    axes.plot(asked, goodputs, color=GOOD, marker="o", label="goodput")
    axes.set_ylim(0, most(report.points) * 1.25 or 1)
    axes.set_ylabel("answers a second")
    if not report.is_open:
        axes.set_xscale("log", base=2)  # each is twice the one before
        axes.set_xticks(asked)
        axes.minorticks_off()
        axes.set_xlabel("jobs in flight")
        return
    axes.plot([0, max(asked)], [0, max(asked)], color=FAINT, linestyle="dotted", label="all that was asked for")
    strained = [point for point in report.points if point.strained]
    if strained:
        at, answered = [point.load.asked for point in strained], [point.goodput for point in strained]
        axes.scatter(at, answered, facecolor="white", edgecolor=GOOD, zorder=3, label="the sender at its limit")
    axes.set_xlim(0, max(asked) * 1.05)
    axes.set_xlabel("jobs asked for, a second")
