"""`pool top`: what `pool status` shows, live, sorted, with charts of the last minutes."""

import contextlib
import math
import sys
import time
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any

import click
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from pool import Client
from pool.cli.failure import CommandFailed
from pool.cli.model_loads import at_most
from pool.cli.options import IMPATIENT, lone_endpoint_option
from pool.cli.pools import one_pool
from pool.errors import PoolError
from pool.terminal import CHART, STATE_STYLES, Heading, Keys, Pane, gibibytes, labelled, numeric, size, span, sparkline
from pool.wire.records import ModelLoad, Slot, Status

__all__ = ["top"]

KEPT = 240  # figures of a chart
LOOK_S = 0.25  # between two looks at the size of the terminal
KEYS = "q quit · letter sorts, again reverses · ↑↓ scroll · tab switches · space pauses"


def _state(state: str) -> Text:
    return Text(state, STATE_STYLES.get(state, ""))


MODELS = (
    Heading("MODEL", "m", str, left=True),
    Heading("JOBS/S", "j", numeric),
    Heading("P50", "5", lambda ends: ends[1], spare=4),
    Heading("P99", "9", lambda ends: ends[1], spare=1),
    Heading("ERRORS", "e", "{:,}".format, spare=3),
    Heading("QUEUED", "u", "{:,}".format, spare=2),
    Heading("RUNNING", "r", "{:,}".format, spare=6),
    Heading("BUSY", "b", "{:.0%}".format, spare=5),
)
SLOTS = (
    Heading("SLOT", "s", str, left=True),
    Heading("DEVICE", "d", str, spare=4, left=True),
    Heading("STATE", "t", _state, left=True),
    Heading("JOBS/S", "j", numeric),
    Heading("GPU MEM", "g", lambda held: held[1], spare=2),
    Heading("LOAD", "l", "{:.0%}".format, spare=3),
    Heading("TEMP", "p", "{} °C".format, spare=5),
    Heading("HOST MEM", "h", size, spare=6),
    Heading("DOING", "o", str, spare=7, left=True),
)


class Watched:
    """What was seen of a pool so far. Rates are those between two looks, by the pool's own clock."""

    def __init__(self) -> None:
        self.found: Status | None = None
        self.trouble = ""
        self.models = Pane(MODELS, "JOBS/S", descending=True)
        self.slots = Pane(SLOTS, "SLOT", descending=False)
        self._forget()

    def _forget(self) -> None:
        self._charts: defaultdict[tuple[str, Any], deque[float]] = defaultdict(lambda: deque(maxlen=KEPT))
        self._before: dict[tuple[str, Any], float] = {}

    def see(self, found: Status) -> None:
        if self.found is not None and found.instance != self.found.instance:
            self._forget()
            self.found = None
        seconds = 0.0 if self.found is None else found.uptime_s - self.found.uptime_s
        self.found, self.trouble = found, ""
        self.models.rows = [self._model(model, seconds) for model in found.models]
        self.slots.rows = [self._slot(slot, seconds) for slot in found.slots]
        self._chart(("all", "jobs"), sum(row["JOBS/S"] for row in self.models.rows))
        self._chart(("all", "queue"), found.queue.queued)

    def head(self, width: int) -> Text:
        """Two lines."""
        found = self.found
        if found is None:
            return Text(self.trouble, "red")
        text = Text.assemble(
            f"pool {found.version} ",
            _state(found.state),
            f"  up {span(found.uptime_s)}  {found.endpoint}\n",
        )
        if self.trouble:
            return text.append(f"trying again: {self.trouble}", "red")
        jobs, queued = self._charts["all", "jobs"], self._charts["all", "queue"]
        running = f"  {found.queue.jobs - queued[-1]:,} running, {size(found.queue.bytes)}"
        chart = max(0, (width - len(running) - len("123,456 jobs/s ?  1,234 queued ")) // 2)
        text.append(f"{numeric(jobs[-1])} jobs/s ").append(sparkline(jobs, chart), "cyan")
        return text.append(f"  {queued[-1]:,} queued ").append(sparkline(queued, chart), "cyan").append(running)

    def _model(self, model: ModelLoad, seconds: float) -> dict[str, Any]:
        name, last_minute = model.name, model.last_minute
        rate = self._rate(("model", name), model.answered["done"], seconds)
        return {
            "MODEL": labelled(name, model.labels),
            "JOBS/S": rate,
            "P50": (last_minute.p50_s or math.inf, at_most(last_minute, last_minute.p50_s)),
            "P99": (last_minute.p99_s or math.inf, at_most(last_minute, last_minute.p99_s)),
            "ERRORS": last_minute.failed,
            "QUEUED": model.queued_jobs,
            "RUNNING": model.unanswered_jobs - model.queued_jobs,
            "BUSY": self._rate(("busy", name), model.device_s, seconds),
            CHART: self._chart(("model", name), rate),
        }

    def _slot(self, slot: Slot, seconds: float) -> dict[str, Any]:
        number = slot.slot
        told = [
            (gpu.used_bytes, gpu.total_bytes) for gpu in slot.gpus if gpu.used_bytes is not None and gpu.total_bytes
        ]
        used, total = sum(each for each, _ in told), sum(each for _, each in told)
        loads = [gpu.utilization for gpu in slot.gpus if gpu.utilization is not None]
        load = sum(loads) / len(loads) if loads else None
        rate = self._rate(("slot", number), slot.jobs_done, seconds)
        return {
            "SLOT": number,
            "DEVICE": slot.device,
            "STATE": slot.state,
            "JOBS/S": rate,
            "GPU MEM": (used / total, gibibytes(used, total)) if told else None,
            "LOAD": load,
            "TEMP": max((gpu.temperature_c for gpu in slot.gpus if gpu.temperature_c is not None), default=None),
            "HOST MEM": slot.memory_bytes,
            "DOING": slot.doing,
            CHART: self._chart(("slot", number), rate if load is None else load),
        }

    def _rate(self, name: tuple[str, Any], count: float, seconds: float) -> float:
        before = self._before.get(name, count)
        self._before[name] = count
        return (count - before) / seconds if seconds > 0 else 0.0

    def _chart(self, name: tuple[str, Any], figure: float) -> Sequence[float]:
        chart = self._charts[name]
        chart.append(figure)
        return chart


@click.command()
@click.option(
    "--interval",
    type=click.FloatRange(0.1),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Between two looks.",
)
@lone_endpoint_option
def top(interval: float, endpoints: tuple[str, ...]) -> None:
    """Show models and slots live: rates with charts, latencies, queues, GPUs.

    P50, P99 and ERRORS are those of the last minute; JOBS/S and BUSY are those since the last look. BUSY is device time
    a second. Press the underlined letter of a heading to sort by it, and q to leave.
    """
    endpoint = one_pool(endpoints)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise CommandFailed("pool top needs a terminal; `pool status --json` is for programs")
    console = Console(markup=False, emoji=False, highlight=False)
    watched = Watched()
    panes, paused, due = [watched.models, watched.slots], False, 0.0
    with (
        contextlib.suppress(KeyboardInterrupt),
        Client(endpoint, **IMPATIENT) as client,
        Keys(sys.stdin.fileno()) as keys,
        Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live,
    ):
        while True:
            if not paused and time.monotonic() >= due:
                try:
                    watched.see(client.status())
                except PoolError as error:
                    watched.trouble = str(error)
                due = time.monotonic() + interval
            live.update(_screen(watched, console, panes[0]), refresh=True)
            match keys.wait(LOOK_S if paused else min(LOOK_S, max(0.0, due - time.monotonic()))):
                case "q" | "escape":
                    return
                case "tab":
                    panes.reverse()
                case " ":
                    paused = not paused
                case str(key):
                    panes[0].press(key, console.height // 2)


def _screen(watched: Watched, console: Console, active: Pane) -> Group:
    """Slots get half of the height at most, unless the models leave more."""
    head = watched.head(console.width)
    if watched.found is None:
        return Group(head)
    head.no_wrap, head.overflow = True, "ellipsis"
    lines = max(4, console.height - 5)  # without the head, a blank line before each table, and the keys
    models, slots = len(watched.models.rows) + 1, len(watched.slots.rows) + 1
    slots = min(slots, max(lines // 2, lines - models))
    models = min(models, lines - slots)
    tables = [
        pane.table(console, room, pane is active) for pane, room in ((watched.models, models), (watched.slots, slots))
    ]
    keys = Text(KEYS, "dim", no_wrap=True, overflow="ellipsis")
    return Group(head, "", tables[0], "", tables[1], *[""] * (lines - models - slots), keys)
