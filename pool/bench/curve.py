"""The latency–throughput curve of a sweep: p50 and p99 over what was answered, latency in decades.

In a terminal it is drawn of characters. In a file it is drawn by matplotlib, which is the optional extra `plot`.
"""

from collections.abc import Callable
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from pool.errors import Incompatible
from pool.terminal import Curve, numeric, plot

if TYPE_CHECKING:
    from pool.bench.report import LoadReport

__all__ = ["drawer", "drawn"]

FAINT, GRID = "#7b848c", "#e3e6e9"
P50, P99, GOOD = "#1f77b4", "#d1495b", "#23835c"
_LINES = (("p99", "●", "red", P99), ("p50", "○", "cyan", P50))


def drawn(report: "LoadReport", width: int) -> Text:
    """Of a sweep, in the order of its measurement; nothing where nothing was answered."""
    if not report.highest:
        return Text()
    curves = [Curve(name, sign, style, _curves(report)[name]) for name, sign, style, _ in _LINES]
    return plot(curves, width, across=_axis(report), up="ms", most=report.highest, mark=report.limit)


def drawer() -> "Callable[[Path, LoadReport], None]":
    """The function that draws, so that a missing library is found before all else. Raises `Incompatible`."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise Incompatible("--plot needs matplotlib: pip install 'tf-worker-pool[plot]'") from None
    return _draw


def _draw(path: Path, report: "LoadReport") -> None:
    """Writes the file, of the kind that its name ends in. Points are joined in the order of their measurement."""
    from matplotlib.figure import Figure

    points, load, highest = report.points, report.loads[0], report.highest
    figure = Figure(figsize=(9.6, 8.4), dpi=160, layout="constrained")
    latency, goodput = figure.subplots(2, 1, height_ratios=(3, 2))
    figure.suptitle(str(report.job), fontsize=15, fontweight="bold")
    latency.set_title(report.about, fontsize=10, color=FAINT, pad=34)  # above the legend
    curves = _curves(report)
    for name, _, _, color in _LINES:
        at, latencies_ms = zip(*curves[name], strict=True) if curves[name] else ((), ())
        latency.plot(at, latencies_ms, color=color, marker="o", label=name)
    latency.axvline(highest, color=GOOD, linestyle="dashed", label=report.limit)
    if report.is_open and load.timeout_s is not None:
        latency.axhline(load.timeout_s * 1000, color=FAINT, linestyle="dotted", label=f"timeout {load.timeout_s:g} s")
    if report.bound_s is not None:
        bound_ms = report.bound_s * 1000
        label = f"bound of the p99, {numeric(bound_ms)} ms"
        latency.axhline(bound_ms, color=P99, linestyle="dotted", label=label)
    latency.set(yscale="log", xlim=(0, highest * 1.05 or 1), xlabel=_axis(report), ylabel="latency, ms")
    asked = [point.load.asked for point in points]
    goodput.plot(asked, [point.goodput for point in points], color=GOOD, marker="o", label="goodput")
    goodput.set(ylim=(0, highest * 1.25 or 1), ylabel="answers a second")
    if report.is_open:
        goodput.plot([0, max(asked)], [0, max(asked)], color=FAINT, linestyle="dotted", label="all that was requested")
        if strained := [point for point in points if point.strained]:
            limits = [(point.load.asked, point.goodput) for point in strained]
            goodput.scatter(
                *zip(*limits, strict=True), facecolor="white", edgecolor=GOOD, zorder=3, label="the sender at its limit"
            )
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


def _curves(report: "LoadReport") -> dict[str, list[tuple[float, float]]]:
    """By the percentile: answers a second and milliseconds, of each point that was answered."""
    answered = [point for point in report.points if not isnan(point.latency_s["p50"])]
    return {
        name: [(point.goodput, max(point.latency_s[name] * 1000, 1e-6)) for point in answered] for name, *_ in _LINES
    }


def _axis(report: "LoadReport") -> str:
    return f"{'goodput' if report.is_open else 'throughput'}, answers/s"
