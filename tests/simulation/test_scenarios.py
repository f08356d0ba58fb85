"""What the production core does in virtual time, in numbers: everything mixed, deadlines, waiting, bad jobs."""

import itertools

import pytest
from simulation.virtual.clients import Closed, Poisson, Wish, choices
from simulation.virtual.mixed import run_mixed
from simulation.virtual.workers import Truth
from simulation.virtual.world import World

from pool.core.policy import ModelPolicy, Policy
from pool.wire.faults import Fault

SEED = 11


def one_slot(truth: Truth, *, lanes: int = 1, seed: int = SEED, attempts: int = 2, **model: float) -> World:
    """A slot with the model "m"; the core checks itself after every event."""
    policy = Policy(max_jobs=100_000, max_attempts=attempts, models={"m": ModelPolicy(**model)})  # type: ignore[arg-type]
    return World([("m",)], {"m": truth}, policy, seed=seed, lanes=lanes, validate_every=1)


def test_20_000_jobs_of_all_kinds_in_bad_weather() -> None:
    world = run_mixed(seed=SEED, jobs=20_000, slots=8, rate=900.0)
    print(world.report())  # noqa: T201  # the seed, to run it again

    books, mishaps = world.books, world.workers.mishaps
    assert books.asked == 20_000
    assert min(mishaps[what] for what in ("crash", "stall", "stillborn", "unsent", "late answer", "slow start")) >= 2
    assert min(mishaps[what] for what in ("model error", "out of memory", "rows lost", "killed")) >= 1
    assert books.kept == books.failed[Fault.QUARANTINED] >= 2
    assert books.failed[Fault.MODEL_FAILED] >= 80
    assert books.done >= 15_000
    assert books.failed[Fault.WORKER_LOST] <= 20


@pytest.mark.parametrize("seed", range(21, 25))
def test_no_promise_is_broken_where_the_loop_is_late(seed: int) -> None:
    world = run_mixed(seed=seed, jobs=1_500, slots=4, rate=500.0, loop_late_s=0.004, validate_every=10)
    print(world.report())  # noqa: T201
    assert world.books.asked == 1_500


def test_nothing_starts_after_its_deadline_where_the_loop_is_late() -> None:
    """The answer of the batch before comes first, and the timer of the deadline, which is past, after it."""
    world = World([("m",)], {"m": Truth(0.030, 0.0, 0.0)}, Policy(), seed=SEED, lanes=1, loop_late_s=0.002)
    world.submit(b"a", "m", guilty=0)  # so that nothing is known of the costs
    job = world.submit(b"b", "m", timeout_s=0.029)
    world.finish()
    assert (job.runs, world.books.failed[Fault.DEADLINE_EXCEEDED]) == (0, 1)


def test_nothing_starts_again_after_its_deadline_where_the_loop_is_late() -> None:
    world = World([("m",)], {"m": Truth(0.030, 0.0, 0.0)}, Policy(), seed=SEED, lanes=1, loop_late_s=0.002)
    world.submit(b"a", "m")
    guilty = world.submit(b"b", "m", timeout_s=0.089, guilty=0)
    job = world.submit(b"c", "m", timeout_s=0.089)
    world.finish()
    assert guilty.runs + job.runs == 3
    assert world.books.failed == {Fault.MODEL_FAILED: 1, Fault.DEADLINE_EXCEEDED: 1}


def test_what_waits_for_a_retry_is_not_joined_when_its_signature_turns_out_to_lose_rows() -> None:
    truth = Truth(0.010, 0.001, 0.0, loses_rows=True)
    world = one_slot(truth, lanes=2, max_batch=8)
    for number in range(2 + 8 + 2):
        world.submit(b"a", "m", guilty=0 if number == 5 else -1)
    world.finish()  # the batch of two tells of the rows before the batch of eight fails
    assert world.workers.mishaps["rows lost"] == 1
    assert (world.books.done, world.books.failed) == (11, {Fault.MODEL_FAILED: 1})


# --- deadlines ------------------------------------------------------------------------------------------------------


def test_a_deadline_of_10_s_behind_a_batch_of_90_s_is_answered_at_10_s() -> None:
    world = one_slot(Truth(90.0, 0.0, 0.0), max_batch=1)
    long = world.submit(b"long", "m", timeout_s=200.0)
    began = world.now
    short = world.submit(b"short", "m", timeout_s=10.0)
    world.run_until(lambda: (short.client, short.number) not in world.books.open)
    print(f"seed {SEED}: answered after {world.now - began:.6f} s")  # noqa: T201

    assert world.now == began + 10.0
    assert world.books.failed == {Fault.DEADLINE_EXCEEDED: 1}
    assert short.runs == 0
    world.finish()
    assert world.books.latencies[long.client][0] == pytest.approx(90.0)


def test_what_cannot_be_done_in_time_is_told_at_once() -> None:
    world = one_slot(Truth(0.1, 0.0, 0.0), max_batch=1)
    for _ in range(4):
        world.submit(b"a", "m")
        world.run_until(lambda: not world.books.open)
    began = world.now
    job = world.submit(b"a", "m", timeout_s=0.05)

    assert world.now == began
    assert not world.books.open
    assert (world.books.early, job.runs) == (1, 0)
    world.finish()


# --- waiting for company --------------------------------------------------------------------------------------------


def test_batch_wait_never_costs_a_deadline() -> None:
    world = one_slot(Truth(0.010, 0.001, 0.05), batch_wait_s=5.0)
    for _ in range(5):  # what a batch costs has been seen
        for _ in range(32):
            world.submit(b"first", "m")
        world.run_until(lambda: not world.books.open)
    wish = Wish("m", choices(1, 2, 3), timeout_s=0.3)
    Poisson(world, "a", [wish], 500, rate=20.0).start()
    world.run_until(lambda: world.books.asked == 160 + 500)
    world.finish()
    print(world.report())  # noqa: T201

    assert world.books.done == 660
    assert world.workers.batches < 5 + 250, "nobody waited for company"


def test_batch_wait_never_costs_a_deadline_of_which_nothing_is_known_yet() -> None:
    world = one_slot(Truth(0.010, 0.001, 0.0), batch_wait_s=5.0)
    job = world.submit(b"a", "m", timeout_s=0.3)
    world.finish()
    assert (world.books.done, job.runs) == (1, 1)


def test_batch_wait_ends_when_the_batch_is_full() -> None:
    world = one_slot(Truth(0.010, 0.0, 0.0), batch_wait_s=5.0)
    began = world.now
    for number in range(32):
        assert world.workers.batches == 0, f"started with {number} of 32"
        world.submit(b"%d" % number, "m")
    assert (world.workers.batches, world.workers.rows) == (1, 32)
    assert world.now == began
    world.submit(b"late", "m")
    world.run_until(lambda: not world.books.open)
    assert world.now == pytest.approx(began + 5.0 + 0.010)
    world.finish()


@pytest.mark.parametrize("lanes", [1, 2, 4])
def test_without_batch_wait_no_lane_idles_while_work_waits(lanes: int) -> None:
    truths = {"a": Truth(0.02, 0.001, 0.3), "b": Truth(0.01, 0.002, 0.3)}
    world = World([("a", "b"), ("a",), ("b",)], truths, Policy(), seed=SEED, lanes=lanes)
    rows = choices(1, 2, 7, 40)
    for number in range(5):
        wishes = [Wish("a", rows), Wish("b", rows, priority=number)]
        Poisson(world, f"client {number}", wishes, 400, rate=15.0 * lanes).start()
    looked = idled = waited = 0
    while world.books.asked < 2_000:
        world.run_for(0.0005)
        waiting = {job.model for job in world.books.open.values() if job.out < job.rows and job.runs == 0}
        spare = [worker for worker in world.workers.alive.values() if len(worker.busy) < worker.lanes]
        looked, waited, idled = looked + 1, waited + bool(waiting), idled + bool(spare)
        for worker in spare:
            assert not waiting.intersection(world.placement[worker.slot]), f"slot {worker.slot} idles"
    print(f"seed {SEED}: {looked} looks, work waited at {waited}, a lane was idle at {idled}")  # noqa: T201
    assert min(waited, idled) > looked / 20, "too calm, or too busy, to show anything"
    world.finish()


# --- bad jobs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [0, 5, 15, 16, 31])
def test_one_guilty_among_32_is_found_in_11_runs(place: int) -> None:
    """32 → 16 + 16 → 8 + 8 → 4 + 4 → four alone: of each pair one half is innocent and ends there."""
    world = one_slot(Truth())
    world.submit(b"first", "m")  # the others gather while it runs
    for number in range(32):
        world.submit(b"%d" % number, "m", guilty=0 if number == place else -1)
    world.run_until(lambda: not world.books.open)

    assert world.workers.batches - 1 == 1 + 2 + 2 + 2 + 4
    assert (world.books.done, world.books.failed) == (1 + 31, {Fault.MODEL_FAILED: 1})
    world.finish()


def test_no_memory_finds_the_working_size_and_raises_it_again_later() -> None:
    free_at = 1_600.0
    truth = Truth(0.5, 0.01, 0.0, fits=lambda now: 20 if now < free_at else 64)
    world = World([("m",)], {"m": truth}, Policy(), seed=SEED, lanes=1)
    sizes: dict[str, list[int]] = {"short": [], "free": []}
    Closed(world, "a", [Wish("m", choices(1, 1, 4))], in_flight=60).start()
    while world.now < 3_000.0:
        before = world.workers.batches, world.workers.rows
        world.run_for(10.0)
        batches, rows = world.workers.batches - before[0], world.workers.rows - before[1]
        sizes["short" if world.now < free_at else "free"].append(round(rows / batches))
    short_of_memory = world.workers.mishaps["out of memory"]
    print(f"seed {SEED}: rows a batch, every 10 s: {sizes}; no memory {short_of_memory} times")  # noqa: T201

    assert all(10 <= size <= 20 for size in sizes["short"])
    assert max(sizes["short"]) >= 16
    assert short_of_memory <= 12, "a size that does not fit is tried too often"
    assert min(sizes["free"][-10:]) >= 30, "not 32: a job of four rows is not cut to fill a batch"
    assert world.books.failed == {}


def test_a_row_that_never_fits_gets_out_of_memory() -> None:
    policy = Policy(models={"m": ModelPolicy()})
    world = World([("m",)], {"m": Truth(fits=lambda _now: 0)}, policy, seed=SEED, unfit=frozenset({"m"}))
    for rows in (1, 7, 1, 32):
        world.submit(b"a", "m", rows)
    world.finish()
    assert world.books.failed == {Fault.OUT_OF_MEMORY: 4}


@pytest.mark.parametrize("attempts", [1, 2, 3])
def test_poison_is_quarantined_and_harms_nobody(attempts: int) -> None:
    world = one_slot(Truth(), attempts=attempts, lanes=2)
    world.submit(b"first", "m")
    world.submit(b"first", "m")
    numbers = itertools.count()
    for _ in range(31):
        world.submit(b"neighbour %d" % next(numbers), "m", timeout_s=50.0)
    poison = world.submit(b"poisoner", "m", timeout_s=50.0, poison=True)
    Poisson(world, "later", [Wish("m")], 200, rate=100.0).start()
    world.run_until(lambda: world.books.asked == 2 + 31 + 1 + 200)
    world.finish()
    print(world.report())  # noqa: T201

    books = world.books
    if attempts > 1:
        assert books.failed == {Fault.QUARANTINED: 1}
        assert poison.deaths == attempts
    else:  # nobody can say which of the batch it was
        assert books.failed[Fault.WORKER_LOST] + books.failed[Fault.QUARANTINED] == books.failed.total() <= 1 + 63
    assert len(books.latencies[b"later"]) >= (200 if attempts > 1 else 150)
    assert books.kept == books.failed[Fault.QUARANTINED]
