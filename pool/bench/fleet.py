"""Who submits: this process, or several clients, each a process of its own; what those tell is counted here."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from queue import Empty
from typing import Any

from rich.progress import BarColumn, Progress, TextColumn

from pool import Client
from pool.bench.child import END_S, Child, Told
from pool.bench.load import BenchJob, Load
from pool.bench.loop import GRACE_S, LOOK_S, Loop
from pool.bench.meter import Meter, Show
from pool.bench.point import INTERRUPTED, Answer, Point
from pool.bench.report import LoadReport
from pool.terminal import progress_console

__all__ = ["Run", "connected", "measure", "progress_bar"]

START_S = 30.0  # until one of them is connected
BEGIN_S = 0.1  # from the order to the first job, so that all begin at once
LAG_S = 0.25  # by how much what they tell may be late

# What came of a load. After an open loop the pool is empty when it returns.
Run = Callable[[Load, Show], Point]


@contextmanager
def connected(client: Client, clients: int, endpoints: list[str] | None, job: BenchJob) -> Iterator[Run]:
    """Begins when its processes are connected, and ends them. One client is this process. Raises `NotMeasured`."""
    if clients == 1:
        yield partial(_run_here, client, job)
        return
    told = Told()
    with ExitStack() as stack:
        made = (Child(f"client {number} of {clients}", ["pool.bench.sender"], told) for number in range(clients))
        children = [stack.enter_context(child) for child in made]
        for child in children:
            child.ask({"endpoints": endpoints, "job": job.packed()}, START_S)
        yield partial(_run_in, children, told)


@contextmanager
def progress_bar() -> Iterator[Callable[[str, str, float, float], None]]:
    """On stderr, where that is a terminal; gone when it ends. Shows which step, and of that what a `Show` does."""
    console = progress_console()
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[rate]:,.0f} jobs/s"))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=1.0, rate=0.0)
        yield lambda step, what, part, rate: progress.update(task, description=step + what, completed=part, rate=rate)


def measure(run: Run, report: LoadReport) -> None:
    """Each load of the report until the last one, or until what the report finds is the end."""
    with progress_bar() as show:
        for load in report.loads:
            if not report.add(run(load, partial(show, f"{load} " if report.several else ""))):
                return


def _run_here(client: Client, job: BenchJob, load: Load, show: Show) -> Point:
    meter = Meter(load, show)
    submit = job.submitter(client, load.timeout_s)
    meter.end(*Loop(submit, meter.look).run(load.in_flight, load.arrivals(), load.timeout_s))
    return meter.point


def _run_in(children: Sequence[Child], told: Told, load: Load, show: Show) -> Point:
    meter = Meter(load, show)
    count, arrivals = len(children), load.arrivals()
    begin = time.perf_counter() + BEGIN_S
    ended: list[float] = []
    early = ""
    try:
        for number, child in enumerate(children):  # they go on until they are told: the parent alone knows when
            share = ((load.in_flight + number) // count, arrivals[number::count], load.timeout_s)
            child.tell({"begin": begin, "first": number, "load": share})
        meter.look(begin)
        while _look(told, meter, ended):
            pass
    except KeyboardInterrupt:
        early = INTERRUPTED
    stopped = time.perf_counter()
    end_s = END_S + ((load.timeout_s or 0.0) + GRACE_S if load.is_open else 0.0)
    deadline = stopped + (LAG_S if early or meter.point.early else end_s)
    with suppress(KeyboardInterrupt):  # a second Ctrl-C waits no longer
        for child in children:
            child.tell({"stop": True})
        while len(ended) < count and time.perf_counter() < deadline:
            _look(told, meter, ended)
    if len(ended) < count:
        early = early or "a client did not end in time"
    meter.end(stopped, max(ended, default=0.0), early)
    return meter.point


def _look(told: Told, meter: Meter, ended: list[float]) -> float:
    """With the next message, if there is one soon."""
    message: dict[str, Any] = {}
    with suppress(Empty):
        message = told.get(timeout=LOOK_S)
    if "failed" in message:
        meter.point.early = meter.point.early or message["failed"]
    if "failed" in message or "ended" in message:
        ended.append(message.get("ended", 0.0))
    answers = map(Answer._make, message.get("answers", ()))
    return meter.look(time.perf_counter() - LAG_S, message.get("sent", ()), answers)
