"""What is measured of the pool itself, section by section; the peers are in `benchmarks.peers.bouts`."""

from collections.abc import Callable
from typing import Any

from benchmarks import large, memory, recovery
from benchmarks.cases import Case
from benchmarks.ours import ARRAY, ClientProcess, Ours, serving, together
from benchmarks.rounds import fastest, ratio, spread
from benchmarks.run import Run
from pool import Client
from pool.errors import InvalidConfig

__all__ = ["SECTIONS", "clients", "echo64", "flows", "imports", "lone", "remembered", "restart"]

RECOVERY_ROUNDS = 3
IMPORT_ROUNDS = 7
JOBS = 1_000_000
LONG_S = 1.0  # turns of a run that has time for all of them
CLIENTS = 4
IMPORT_AIM_S = 0.1
NOT_BUILT = "the client has no `empty` yet"


def lone(run: Run, client: Client) -> None:
    """One job at a time, of each model."""
    for name, reference in run.references.items():
        ours = Ours(client, reference.turns)
        ways = {
            "Session.run": run.timed(reference.alone),
            "callable": run.timed(reference.callable_alone),
            "client.run": run.timed(ours.alone),
        }
        samples = run.measure(f"{name}, one at a time, p50", "s", ways)
        if name == "mlp":
            run.conclude("alone", samples, "client.run", "Session.run")


def flows(run: Run, client: Client) -> None:
    """As many rows a second as go, of each model, every way."""
    for name, reference in run.references.items():
        ours = Ours(client, reference.turns)
        ours_flows, theirs = ours.flows(), reference.flows()
        ways = {way: run.timed(flow) for way, flow in {**theirs, **ours_flows, **ours.array_flows()}.items()}
        samples = run.measure(f"{name}, one client", "rows/s", ways)
        loop, single, batched = theirs
        if name == "mlp":
            run.conclude("loop", samples, fastest(samples, ours_flows), loop)
            run.conclude("map", samples, ARRAY, batched)
        if name == "image":
            best = [max(pair) for pair in zip(samples[single], samples[batched], strict=True)]
            way = fastest(samples, ours_flows)
            run.conclude_spread("image_callable", ratio(samples[way], best), way)


def clients(run: Run, client: Client) -> None:
    """One client process, and four at once."""
    files = run.files("mlp")
    processes = [
        ClientProcess(client.endpoint, *files, 256, run.folder / f"client-{number}.log") for number in range(CLIENTS)
    ]
    try:
        for process in processes:
            process.ready()
        one, four = "one client process", f"{CLIENTS} at once, in total"
        ways = {
            one: run.timed(lambda seconds: together(processes[:1], seconds)),
            four: run.timed(lambda seconds: together(processes, seconds)),
        }
        samples = run.measure("mlp, clients in processes of their own", "rows/s", ways)
        run.conclude("four", samples, four, one)
    finally:
        for process in processes:
            process.end()


def echo64(run: Run, client: Client) -> None:
    samples = run.measure("echo64", "s", large.ways(client, run.cases["echo64"]))
    run.conclude("echo64", samples, large.RUN, large.COPY)
    if large.FROM_EMPTY in samples:
        run.conclude("echo64_empty", samples, large.FROM_EMPTY, large.FROM_EMPTY_SMALL)
    else:
        run.missing("echo64_empty", NOT_BUILT)


def remembered(run: Run, client: Client) -> None:
    """What the pool and the client hold, however many jobs there were."""
    jobs = JOBS if run.seconds >= LONG_S else JOBS // 10
    run.say(f"memory: {jobs:,} jobs")
    pool, mine = memory.held(client, run.references["mlp"].turns, jobs)
    run.conclude_spread("memory", spread([pool[-1] / memory.MOST_BYTES]), f"{jobs:,} jobs, {pool[-1] / 1e6:.0f} MB")
    run.conclude_spread("flat", spread([pool[-1] / pool[0]]), f"{jobs:,} jobs")
    run.conclude_spread("flat_client", spread([mine[-1] / mine[0]]), f"{jobs:,} jobs")


def imports(run: Run, _: Client) -> None:
    last: dict[str, float] = {}

    def import_pool() -> float:
        last.update(recovery.fresh(["import-pool"], run.folder / "fresh.log"))
        return last["pool"]

    ways = {"import pool": import_pool, "import numpy": lambda: last["numpy"]}  # of the same process
    samples = run.measure("imports in a fresh process, processor time", "s", ways, IMPORT_ROUNDS)
    run.conclude_spread("import", spread([taken / IMPORT_AIM_S for taken in samples["import pool"]]), "import pool")


def restart(run: Run, _: Client) -> None:
    """Pools of its own, with one worker each; at last one with a standby, where the pool knows of such."""
    case = run.cases["mlp"]
    with serving([case], 1) as pool:
        taken = recovery.killed(pool, run.references["mlp"].turns)
        ways = {"import + load": lambda: recovery.fresh_load(case, run.folder)["total"], "killed to answer": taken}
        samples = run.measure("a worker is killed", "s", ways, RECOVERY_ROUNDS)
        run.conclude("restart", samples, "killed to answer", "import + load")
    try:
        standby: Any = serving([case], 1, standby=True)
    except InvalidConfig:
        run.missing("standby", "the pool has no standby yet")
        return
    with standby as pool:
        _with_standby(run, case, recovery.killed(pool, run.references["mlp"].turns))


def _with_standby(run: Run, case: Case, taken: Callable[[], float]) -> None:
    # The fresh process comes first in a round: meanwhile the next standby gets ready.
    ways = {
        "1.3 × load + 0.3 s": lambda: 1.3 * recovery.fresh_load(case, run.folder)["load"] + 0.3,
        "killed to answer": taken,
    }
    samples = run.measure("a worker with a standby is killed", "s", ways, RECOVERY_ROUNDS)
    run.conclude("standby", samples, "killed to answer", "1.3 × load + 0.3 s")


SECTIONS: dict[str, Callable[[Run, Client], None]] = {
    section.__name__: section for section in (lone, flows, clients, echo64, remembered, imports, restart)
}
