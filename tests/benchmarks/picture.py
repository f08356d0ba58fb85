"""The run as a picture: how far each aim is met, and each way's rows a second."""

from pathlib import Path

from benchmarks.rounds import spread
from benchmarks.run import Run

__all__ = ["draw"]

INK, FAINT, MET, MISSED, THEIRS = "#33383d", "#c3c9ce", "#23835c", "#d1495b", "#7b848c"


def draw(run: Run, path: Path) -> None:
    """Needs matplotlib, the extra `plot`. Writes a file of the kind that its name ends in."""
    from matplotlib.figure import Figure

    measured = [(result, result.ratio) for result in run.results if result.ratio is not None]
    bars = [
        (f"{group.title.split(',')[0]}: {way}", spread(figures).median)
        for group in run.groups
        if group.unit == "rows/s"
        for way, figures in group.samples.items()
    ]
    figure = Figure(figsize=(10, 2.5 + 0.3 * (len(measured) + len(bars))), dpi=140, layout="constrained")
    aims, rates = figure.subplots(2, 1, height_ratios=(len(measured) + 1, len(bars) + 1))

    names = [f"{result.aim.what}\n{result.aim.text}" for result, _ in measured]
    # To the right of the line is better, whichever way the aim goes.
    good = [
        result.aim.bound / ratio.median if result.aim.at_most else ratio.median / result.aim.bound
        for result, ratio in measured
    ]
    aims.barh(names, good, color=[MET if value >= 1 else MISSED for value in good])
    aims.axvline(1.0, color=INK, linewidth=1.2)
    aims.set_xscale("log")
    aims.set_xlabel("times the aim: right of the line it is met", color=INK)

    ours = ("client", "one client process", "4 at once")
    colors = [MET if name.split(": ")[1].startswith(ours) else THEIRS for name, _ in bars]
    places = range(len(bars))  # equal names would share a bar
    rates.barh(places, [rate for _, rate in bars], color=colors)
    rates.set_yticks(places, [name for name, _ in bars])
    rates.set_xscale("log")
    rates.set_xlabel("rows a second (green: the pool)", color=INK)
    for axes in (aims, rates):
        axes.margins(y=0.01)
        axes.invert_yaxis()
        axes.tick_params(colors=INK, labelsize=7)
        axes.grid(visible=True, axis="x", color=FAINT, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)
