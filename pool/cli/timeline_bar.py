"""Where a job's time went: its segments one under the other, each begins where the one above it ends."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from rich.bar import Bar
from rich.table import Table

from pool import JobTimeline
from pool.terminal import count_of, new_table, plain_console
from pool.wire.records import JobTimes

__all__ = ["segments_of", "timeline_bar", "where_it_ran"]

MOST_WIDTH = 60
LEAST_WIDTH = 10
_COLORS = {"queue": "yellow", "batch wait": "magenta", "run": "green"}
_SUFFIX = "_s"


def segments_of(timeline: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Of the pool's timeline as plain values: name and seconds of each duration, in the order of time."""
    return [
        (key.removesuffix(_SUFFIX).replace("_", " "), value) for key, value in timeline.items() if key.endswith(_SUFFIX)
    ]


def where_it_ran(timeline: JobTimes | JobTimeline) -> str:
    """Rows, batch, worker and attempt of the run that was answered."""
    rows, batch_rows = timeline.rows, timeline.batch_rows
    together = f"{rows} of {count_of(batch_rows, 'row')} run together, "
    if rows > batch_rows > 0:
        together = f"{rows} rows run in pieces, the last of {batch_rows}, "
    again = f", attempt {timeline.attempts}" if timeline.attempts > 1 else ""
    return f"{together if rows else ''}slot {timeline.slot} ({timeline.device}){again}"


def timeline_bar(segments: Sequence[tuple[str, float]]) -> Table:
    """A line a segment: its name, milliseconds, share of the whole, and place in it."""
    whole_s = sum(seconds for _, seconds in segments)
    labels = [name for name, _ in segments]
    texts = [f"{seconds * 1000:,.2f}" for _, seconds in segments]
    taken = max(map(len, labels), default=0) + max(map(len, texts), default=0) + 18
    width = max(LEAST_WIDTH, min(MOST_WIDTH, plain_console().width - taken))
    table = new_table(["", ">", ">", ""])
    ends = list(accumulate((seconds for _, seconds in segments), initial=0.0))
    for (name, seconds), text, begin in zip(segments, texts, ends, strict=False):
        share = f"{seconds / whole_s:.1%}".replace("%", " %") if whole_s else "–"
        bar = Bar(whole_s or 1.0, begin, begin + seconds, width=width, color=_COLORS.get(name, "cyan"))
        table.add_row(f"  {name}", f"{text} ms", share, bar)
    return table
