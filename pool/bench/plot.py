"""The latency–throughput curve as a picture. matplotlib is the optional extra `plot`."""

from collections.abc import Callable
from math import floor, isnan, log10
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pool.bench.report import LoadReport
from pool.errors import PoolError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["drawer"]


INK, FAINT, GRID = "#33383d", "#7b848c", "#e3e6e9"
P50, P99, GOOD = "#1f77b4", "#d1495b", "#23835c"
DOTS, DASHES = (0, (1, 2)), (0, (5, 3))

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
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(w_pad=0.2, h_pad=0.2, hspace=0.04)
    figure = Figure(figsize=(9.6, 8.4), dpi=160, facecolor="white", layout=layout)
    latency, goodput = figure.subplots(2, 1, height_ratios=(3, 2))
    _latency(latency, report)
    latency.set_title(report.title, loc="left", fontsize=15, fontweight="bold", color=INK, pad=36)
    _note(latency, report.about, (0, 1), (0, 20), coords="axes fraction", fontsize=10)
    _goodput(goodput, report)
    for axes in (latency, goodput):
        _plain(axes)
    figure.savefig(path)


def _latency(axes: "Axes", report: LoadReport) -> None:
    answered = [point for point in report.points if not isnan(point.latencies_s["p50"])]
    goodputs = [point.goodput for point in answered]
    timeout_s, bound_s = report.loads[0].timeout_s if report.is_open else None, report.bound_s
    marks = [(f"timeout {timeout_s:g} s", timeout_s)] if timeout_s else []
    marks += [(f"bound of the p99, {bound_s * 1000:g} ms", bound_s)] if bound_s else []
    shown_ms = []
    for name, seconds in marks:
        axes.axhline(seconds * 1000, color=FAINT, linewidth=1, linestyle=DOTS)
        _note(axes, name, (0, seconds * 1000), (4, 4))
        shown_ms.append(seconds * 1000)
    axes.axvline(report.most, color=GOOD, linewidth=1.4, linestyle=DASHES, zorder=1)
    limit = report.limit(f"{report.most:,.4g}")
    _note(
        axes, limit, (report.most, 1), (0, 4), coords=("data", "axes fraction"), ha="right", color=GOOD, fontsize=10.5
    )
    for name, color, aside in (("p99", P99, 9), ("p50", P50, -18)):  # under it: the p99 is often close above
        values_ms = [point.latencies_s[name] * 1000 for point in answered]
        if values_ms:
            axes.plot(goodputs, values_ms, color=color, linewidth=2, marker="o", markersize=6, clip_on=False)
            _note(axes, name, (goodputs[0], values_ms[0]), (0, aside), ha="center", color=color, fontsize=11)
            shown_ms.extend(values_ms)
    shown_ms = shown_ms or [1.0]
    axes.set_yscale("log")
    # From a decade on, for only they are labelled, and with room for the name of the lowest point.
    axes.set_ylim(10 ** floor(log10(min(shown_ms) / 1.5)), max(shown_ms) * 1.7)
    axes.set_xlim(0, report.most * 1.05 or 1)
    axes.set_xlabel("goodput, answers/s" if report.is_open else "throughput, answers/s", color=INK)
    axes.set_ylabel("latency, ms", color=INK)


def _goodput(axes: "Axes", report: LoadReport) -> None:
    asked, goodputs = [point.asked for point in report.points], [point.goodput for point in report.points]
    axes.plot(asked, goodputs, color=GOOD, linewidth=2, marker="o", clip_on=False, label="goodput")
    axes.set_ylim(0, report.most * 1.25 or 1)
    axes.set_ylabel("answers a second", color=INK)
    if not report.is_open:
        axes.set_xscale("log", base=2)  # each is twice the one before
        axes.set_xticks(asked)
        axes.minorticks_off()
        axes.set_xlabel("jobs in flight", color=INK)
        return
    highest = max(asked, default=1.0)
    axes.plot([0, highest], [0, highest], color=FAINT, linewidth=1, linestyle=DOTS, label="all that was asked for")
    strained = [(point.asked, point.goodput) for point in report.points if point.strained]
    if strained:
        style: dict[str, Any] = {"facecolor": "white", "edgecolor": GOOD, "zorder": 3, "clip_on": False}
        axes.scatter(*zip(*strained, strict=True), label="the sender at its limit", **style)
    axes.set_xlim(0, highest * 1.05)
    axes.set_xlabel("jobs asked for, a second", color=INK)
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, frameon=False, labelcolor=INK)


def _plain(axes: "Axes") -> None:
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.grid(visible=True, which="major", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.tick_params(colors=INK, which="both", length=3)


def _note(axes: "Axes", text: str, at: Any, offset: Any, *, coords: Any = "data", **style: Any) -> None:
    """`offset`: in points, from a place of the plot."""
    style.setdefault("color", FAINT)
    style.setdefault("fontsize", 9)
    axes.annotate(text, at, offset, coords, "offset points", **style)
