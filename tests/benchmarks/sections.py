"""What is measured of the pool itself, section by section; the peers are in `benchmarks.peers.bouts`."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

from benchmarks import calls, large, memory, recovery
from benchmarks.aims import ALL_AT_ONCE, KILLED, RUN
from benchmarks.cases import Case
from benchmarks.crowd import CROWD, Crowd, CrowdTurn, Stick
from benchmarks.ours import ClientProcess, Ours, serving, together
from benchmarks.rounds import Samples, in_turn, spread
from benchmarks.run import Run
from pool import Client

__all__ = [
    "SECTIONS",
    "clients",
    "counted",
    "crowd",
    "echo64",
    "flows",
    "imports",
    "lone",
    "measured",
    "remembered",
    "restart",
    "straight",
]

RECOVERY_ROUNDS = 3
IMPORT_ROUNDS = 7
JOBS = 1_000_000
LONG_S = 1.0  # turns of a run that has time for all of them
CLIENTS = 4
IMPORT_AIM_S = 0.1
BARE = "the bare path"
NO_STICK = "--stick was not given, and the bare path is no part of this repository"


def lone(run: Run, client: Client) -> None:
    """One job at a time, of each model."""
    for name, reference in run.references.items():
        ours = Ours(client, reference.turns)
        ways = {
            "Session.run": run.timed(reference.alone),
            "callable": run.timed(reference.callable_alone),
            RUN: run.timed(ours.alone),
        }
        samples = run.measure(f"{name}, one at a time, p50", "s", ways)
        if name == "mlp":
            run.conclude("alone", samples, "Session.run")


def straight(run: Run, client: Client) -> None:
    """A lone job beside the bare path: how long it takes, and what it costs all three processes."""
    if run.stick is None:
        run.missing("stick", NO_STICK)
        run.missing("stick_processor", NO_STICK)
        return
    what = "mlp, one at a time"
    run.say(f"{what}, and the bare path")
    with Stick(run, run.stick, "lone") as stick, Crowd(run, client, clients=1, processes=1) as one:
        taken = in_turn({BARE: run.timed(stick.turn), RUN: run.timed(one.turn)}, run.rounds)
    run.conclude("stick", _kept(run, f"{what}, p50", "s", taken, "p50"), BARE)
    costs = _kept(run, f"{what}, processor time of client, pool and lane", "s", taken, "processor_s")
    run.conclude("stick_processor", costs, BARE)
    _kept(run, f"{what}, of the pool alone", "s", taken, "pool_s")
    _kept(run, f"{what}, wake-ups of all three", "wake-ups", taken, "wake_ups")


def crowd(run: Run, client: Client) -> None:
    """32 clients with one job each, and what each job costs the pool; beside the bare path, where it is there."""
    what = f"mlp, {CROWD} clients with one job each"
    run.say(what)
    with ExitStack() as stack:
        ways = {RUN: run.timed(stack.enter_context(Crowd(run, client)).turn)}
        if run.stick is not None:
            ways = {BARE: run.timed(stack.enter_context(Stick(run, run.stick, "many")).turn), **ways}
        taken = in_turn(ways, run.rounds)
    rates = _kept(run, what, "rows/s", taken, "rate")
    costs = _kept(run, f"{what}, processor time of the pool a job", "s", taken, "pool_s")
    if run.stick is None:
        run.missing("crowd_bare", NO_STICK)
        run.missing("crowd_processor", NO_STICK)
    else:
        run.conclude("crowd_bare", rates, BARE)
        run.conclude("crowd_processor", costs, BARE)


def _kept(run: Run, title: str, unit: str, taken: Mapping[str, Sequence[CrowdTurn]], figure: str) -> Samples:
    return run.keep(title, unit, {way: [getattr(turn, figure) for turn in turns] for way, turns in taken.items()})


def counted(run: Run, _: Client) -> None:
    """What a lone job calls, with a pool of its own."""
    run.say("counting the calls of a lone job")
    counts = calls.counted(run.cases["mlp"], run.folder)
    for aim, count, budget in calls.budgets(counts):
        run.conclude_spread(aim, spread([count / budget]), f"{count:.0f}")


def flows(run: Run, client: Client) -> None:
    """As many rows a second as go, of each model, every way."""
    for name, reference in run.references.items():
        ours = Ours(client, reference.turns)
        theirs = reference.flows()
        ways = {way: run.timed(flow) for way, flow in {**theirs, **ours.flows()}.items()}
        samples = run.measure(f"{name}, one client, {ours.in_flight} in flight", "rows/s", ways)
        loop, single, batched = theirs
        if name == "mlp":
            run.conclude("loop", samples, loop)
            run.conclude("map", samples, batched)
        if name == "image":
            faster = [max(pair) for pair in zip(samples[single], samples[batched], strict=True)]
            run.conclude("image_callable", {**samples, "the faster": faster}, "the faster")
            run.conclude("image_loop", samples, loop)


def clients(run: Run, client: Client) -> None:
    """One client process, and four at once."""
    files = run.files("mlp")
    processes = [
        ClientProcess(client.endpoint, *files, 256, run.folder / f"client-{number}.log") for number in range(CLIENTS)
    ]
    try:
        for process in processes:
            process.ready()
        one = "one client process"
        ways = {
            one: run.timed(lambda seconds: together(processes[:1], seconds)),
            ALL_AT_ONCE: run.timed(lambda seconds: together(processes, seconds)),
        }
        samples = run.measure("mlp, clients in processes of their own", "rows/s", ways)
        run.conclude("four", samples, one)
    finally:
        for process in processes:
            process.end()


def echo64(run: Run, client: Client) -> None:
    samples = run.measure("echo64", "s", large.ways(client, run.cases["echo64"]))
    run.conclude("echo64", samples, large.COPY)
    run.conclude("echo64_empty", samples, large.FROM_EMPTY_SMALL)


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
        last.update(recovery.fresh_import(run.folder))
        return last["pool"]

    ways = {"import pool": import_pool, "import numpy": lambda: last["numpy"]}  # of the same process
    samples = run.measure("imports in a fresh process, processor time", "s", ways, IMPORT_ROUNDS)
    run.conclude_spread("import", spread([taken / IMPORT_AIM_S for taken in samples["import pool"]]))


def restart(run: Run, _: Client) -> None:
    """Pools of its own, with one worker each; the second one with a standby."""
    case = run.cases["mlp"]
    with serving([case], 1) as pool:
        taken = recovery.killed(pool, run.references["mlp"].turns)
        ways = {"import + load": lambda: recovery.fresh_load(case, run.folder)["total"], KILLED: taken}
        samples = run.measure("a worker is killed", "s", ways, RECOVERY_ROUNDS)
        run.conclude("restart", samples, "import + load")
    with serving([case], 1, standby=True) as pool:
        _with_standby(run, case, recovery.killed(pool, run.references["mlp"].turns))


def _with_standby(run: Run, case: Case, taken: Callable[[], float]) -> None:
    # The fresh process comes first in a round: meanwhile the next standby gets ready.
    ways = {
        "1.3 × load + 0.3 s": lambda: 1.3 * recovery.fresh_load(case, run.folder)["load"] + 0.3,
        KILLED: taken,
    }
    samples = run.measure("a worker with a standby is killed", "s", ways, RECOVERY_ROUNDS)
    run.conclude("standby", samples, "1.3 × load + 0.3 s")


def measured(run: Run, client: Client, sections: Mapping[str, Callable[[Run, Client], None]]) -> None:
    """A section that fails, by a wrong answer of ours too, is a row that says why; the others have their turn."""
    for name, section in sections.items():
        try:
            section(run, client)
        except Exception as error:  # whatever it is: the run has taken minutes by then
            run.say(f"{name}: {error}")
            run.failures[name] = f"{type(error).__name__}: {error}"


SECTIONS: dict[str, Callable[[Run, Client], None]] = {
    section.__name__: section
    for section in (lone, straight, crowd, counted, flows, clients, echo64, remembered, imports, restart)
}
