"""The events of reports that former releases wrote, as this release's core understands them.

Who changes a class that is written down raises `pool.recorder.fault_report.FORMAT`, and adds a step here.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pool.recorder.transcript import BadTranscript

__all__ = ["events_of"]

Plain = list[Any]  # number, instant, and the event as `pool.recorder.transcript` writes it


def events_of(report: Mapping[str, Any], newest: int) -> Sequence[Plain]:
    """Those of a report of any format up to the newest. Raises `BadTranscript` for one of another."""
    number = report["format"]
    if type(number) is not int or not 1 <= number <= newest:
        raise BadTranscript(f"a report of format {number!r:.40}; this release reads 1 to {newest}")
    events: Sequence[Plain] = report["events"]
    for step in _STEPS[number - 1 :]:
        events = step(events)
    return events


def _from_1(events: Sequence[Plain]) -> list[Plain]:
    """Workers told when they began to compare rows, and which lane it was."""
    found = []
    for number, now, event in events:
        if "WorkerCompared" in event:
            fields = {key: each for key, each in event["WorkerCompared"].items() if key != "lane"}
            compared = dict(fields["compared"]["RowsCompared"])
            if compared.pop("begun"):
                continue
            event = {"WorkerCompared": {**fields, "compared": {"RowsCompared": compared}}}
        found.append([number, now, event])
    return found


def _from_2(events: Sequence[Plain]) -> list[Plain]:
    """A dispatch followed each event, and was not told."""
    return [each for number, now, event in events for each in ([number, now, event], [number, now, {"Dispatched": {}}])]


_STEPS: Sequence[Callable[[Sequence[Plain]], Sequence[Plain]]] = (_from_1, _from_2)
