"""Whatever workers, clients and time do in whatever order: the core keeps its promises.

The rules are the outside: the fake body obeys the core, and each rule is one thing that can happen to it.
"""

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from simulation.body import HOPELESS, SIGSEGV, STOPPED, Body, Worker

from pool.core import events as told
from pool.core.machine import Machine
from pool.core.policy import Policy, SlotPlan
from pool.wire.faults import Fault
from pool.wire.signatures import ModelInfo
from pool.wire.worker_messages import Phase

PLACEMENTS = (
    (("pure",),),
    (("pure", "counter"), ("pure",), ()),
    (("pure",), ("pure", "counter"), ("counter", "other"), ("other",)),
)
POLICIES = (
    Policy(max_jobs=12, max_bytes=200, default_timeout_s=20.0, hung_floor_s=10.0),
    Policy(max_jobs=12, max_attempts=1, restart_intensity=1, hung_after_s=4.0, ready_needs_all=False),
    Policy(max_jobs=30, max_attempts=4, restart_intensity=50, backoff_max_s=1.0, drain_timeout_s=3.0),
)
CLIENTS = (b"a", b"b", b"c")
MODELS = ("pure", "pure", "counter", "counter", "other", "unknown")
TIMEOUTS = (None, None, 0.0, 0.5, 3.0, 30.0, 300.0, math.nan, math.inf, -1.0)
PAUSES_S = (0.0, 0.01, 0.3, 1.0, 3.0, 11.0, 70.0)
clients, models, timeouts_s = map(st.sampled_from, (CLIENTS, MODELS, TIMEOUTS))
PICK = st.integers(0, 1 << 16)
SLACK_S = 1e-6


class Outside(RuleBasedStateMachine):
    @initialize(placement=st.sampled_from(PLACEMENTS), policy=st.sampled_from(POLICIES), seed=st.integers(0, 99))
    def begin(self, placement: tuple[tuple[str, ...], ...], policy: Policy, seed: int) -> None:
        self.rng = random.Random(seed)
        self.slots = len(placement)
        self.machine = Machine(policy, [SlotPlan(models) for models in placement], self.rng)
        self.body = Body(self.machine, placement, frozenset({"counter"}), validates=True)
        self.numbers = 0
        self.slept_s = 0.0
        self.ends_at: float | None = None
        self.body.feed(told.Start())

    def worker(self, pick: int, **marks: bool) -> Worker | None:
        """One of the workers whose fields are so."""
        fitting = [
            worker
            for worker in self.body.workers.values()
            if all(getattr(worker, name) is value for name, value in marks.items())
        ]
        return fitting[pick % len(fitting)] if fitting else None

    def running(self, pick: int) -> tuple[Worker, int] | None:
        pairs = [(worker, batch) for worker in self.body.workers.values() for batch in worker.running]
        return pairs[pick % len(pairs)] if pairs else None

    # --- clients --------------------------------------------------------------------------------------------------

    @rule(client=clients, model=models, timeout_s=timeouts_s, size_bytes=st.integers(0, 60))
    def submit(self, client: bytes, model: str, timeout_s: float | None, size_bytes: int) -> None:
        self.numbers += 1
        self.body.submit(client, self.numbers, model, timeout_s, size_bytes)

    @rule(client=clients, model=models, count=st.integers(2, 8))
    def submit_many(self, client: bytes, model: str, count: int) -> None:
        for _ in range(count):
            self.submit(client, model, 30.0, 1)

    @rule(pick=PICK, model=models, timeout_s=timeouts_s)
    def use_a_number_again(self, pick: int, model: str, timeout_s: float | None) -> None:
        if (recent := self.body.ledger.records[-5:]) != []:
            record = recent[pick % len(recent)]
            self.body.submit(record.client, record.number, model, timeout_s, 1)

    @rule(pick=PICK)
    def cancel(self, pick: int) -> None:
        if (recent := self.body.ledger.records[-20:]) != []:
            record = recent[pick % len(recent)]
            self.body.feed(told.JobCancelled(record.client, record.number))

    @rule(client=clients)
    def client_goes(self, client: bytes) -> None:
        self.body.feed(told.ClientGone(client))

    # --- workers as they should be --------------------------------------------------------------------------------

    @rule(lanes=st.integers(1, 3))
    def all_come_up(self, lanes: int) -> None:
        while (worker := self.worker(0, helloed=False, killed=False)) is not None:
            self.body.hello(worker)
        while (worker := self.worker(0, welcomed=True, ready=False)) is not None:
            self.body.say_ready(worker, lanes)

    @rule(pick=PICK)
    def says_hello(self, pick: int) -> None:
        if (worker := self.worker(pick, helloed=False)) is not None:
            self.body.hello(worker)

    @rule(pick=PICK, lanes=st.integers(1, 3))
    def says_ready(self, pick: int, lanes: int) -> None:
        if (worker := self.worker(pick, welcomed=True, ready=False)) is not None:
            self.body.say_ready(worker, lanes)

    @rule(pick=PICK, phase=st.sampled_from(Phase))
    def beats(self, pick: int, phase: Phase) -> None:
        if (worker := self.worker(pick, helloed=True)) is not None:
            self.body.feed(told.WorkerBeat(worker.slot, worker.incarnation, phase, "m", ()))

    @rule(pick=PICK)
    def answers(self, pick: int) -> None:
        if (found := self.running(pick)) is not None:
            self.body.answer(*found)

    @rule(count=st.integers(1, 10))
    def answers_many(self, count: int) -> None:
        for _ in range(count):
            self.answers(self.rng.randrange(100))

    @rule(pick=PICK)
    def answers_with_an_error(self, pick: int) -> None:
        if (found := self.running(pick)) is not None:
            self.body.answer(*found, (told.Failed(Fault.MODEL_FAILED, "of the model"),))

    @rule(pick=PICK)
    def does_as_it_was_told(self, pick: int) -> None:
        """A kill takes effect, or a worker that was told to stop has stopped."""
        if (worker := self.worker(pick, killed=True) or self.worker(pick, told_to_stop=True)) is not None:
            self.body.exit(worker, STOPPED)

    # --- workers as they are --------------------------------------------------------------------------------------

    @rule(pick=PICK)
    def dies(self, pick: int) -> None:
        if (worker := self.worker(pick)) is not None:
            self.body.exit(worker, SIGSEGV)

    @rule(pick=PICK)
    def dies_while_it_runs(self, pick: int) -> None:
        if (found := self.running(pick)) is not None:
            self.body.exit(found[0], SIGSEGV)

    @rule(pick=PICK, chance=st.integers(0, 4))
    def dies_for_good(self, pick: int, chance: int) -> None:
        if chance == 0 and (worker := self.worker(pick)) is not None:
            self.body.exit(worker, HOPELESS)

    @rule(pick=PICK, parts=st.sampled_from([0, 2, 3]))
    def answers_a_wrong_number_of_parts(self, pick: int, parts: int) -> None:
        if (found := self.running(pick)) is not None:
            self.body.answer(*found, (told.Succeeded(-1),) * parts)

    @rule(pick=PICK)
    def says_ready_without_its_models(self, pick: int) -> None:
        if (worker := self.worker(pick, welcomed=True, ready=False)) is not None:
            self.body.say_ready(worker, lanes=2, models=0)

    @rule(fails=st.booleans())
    def spawning_fails(self, fails: bool) -> None:
        self.body.spawn_fails = fails

    @rule(slot=st.integers(-1, 5), incarnation=st.integers(0, 6), batch=st.integers(0, 40), which=st.integers(0, 5))
    def somebody_else_speaks(self, slot: int, incarnation: int, batch: int, which: int) -> None:
        """An incarnation that is gone, was never spawned, or has no seat at all."""
        if (slot, incarnation) in self.body.workers:
            return
        info = ModelInfo("pure", "", {}, stateful=False)
        self.body.feed(
            (
                told.WorkerSpawned(slot, incarnation, 1),
                told.WorkerHello(slot, incarnation),
                told.WorkerBeat(slot, incarnation, Phase.LOADING, "", ()),
                told.WorkerReady(slot, incarnation, 2, (info,)),
                told.BatchDone(slot, incarnation, batch, (told.Succeeded(-1),)),
                told.WorkerExited(slot, incarnation, SIGSEGV),
            )[which]
        )

    @rule(pick=PICK, batch=st.integers(0, 100))
    def answers_a_batch_that_it_does_not_have(self, pick: int, batch: int) -> None:
        worker = self.worker(pick)
        if worker is not None and batch not in worker.running:
            self.body.feed(told.BatchDone(worker.slot, worker.incarnation, batch, (told.Succeeded(-1),)))

    # --- time -----------------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from(PAUSES_S))
    def time_passes(self, seconds: float) -> None:
        self.body.pass_time(seconds)

    @rule(seconds=st.sampled_from([1.0, 20.0, 2000.0]), chance=st.integers(0, 3))
    def the_pool_sleeps(self, seconds: float, chance: int) -> None:
        """SIGSTOP or a suspended machine: many deadlines are behind when the next event comes."""
        if chance == 0:
            self.body.now += seconds
            self.slept_s += seconds
            self.body.feed(told.Tick())

    @rule(chance=st.integers(0, 9))
    def stop_is_asked(self, chance: int) -> None:
        if chance == 0:
            self.ask("the test asked")

    def ask(self, reason: str) -> None:
        if self.ends_at is None:
            self.ends_at = self.body.now - self.slept_s + self.machine.policy.longest_stop_s
        self.body.feed(told.StopAsked(reason))

    # --- promises -------------------------------------------------------------------------------------------------

    @invariant()
    def no_job_is_overdue(self) -> None:
        assert self.body.ledger.overdue(self.body.now) == []

    @invariant()
    def the_core_holds_the_open_jobs_and_no_other(self) -> None:
        ledger = self.body.ledger
        assert self.machine.backlog.jobs.keys() == ledger.open.keys()
        assert ledger.retained() == []
        for record in ledger.records:
            key = (record.client, record.number)
            assert (key in self.machine.timers) == (key in ledger.open)

    @invariant()
    def a_stop_is_over_in_time(self) -> None:
        if self.ends_at is not None and self.body.ledger.stopped is None:
            assert self.body.now - self.slept_s <= self.ends_at + SLACK_S

    def teardown(self) -> None:
        """The end, with workers of which some obey, some must be killed, and some are stuck in the kernel."""
        if not hasattr(self, "body"):
            return
        policy, ledger = self.machine.policy, self.body.ledger
        if self.ends_at is None:
            self.ask("the test is over")
        stuck = {seat for seat in self.body.workers if self.rng.random() < 0.2}
        deaf = {seat for seat in self.body.workers if self.rng.random() < 0.2}
        while ledger.stopped is None:
            self.body.pass_time(0.5)
            for seat, worker in list(self.body.workers.items()):
                if (worker.killed and seat not in stuck) or (worker.told_to_stop and seat not in stuck | deaf):
                    self.body.exit(worker, STOPPED)
                elif worker.running and self.rng.random() < 0.5:
                    self.body.answer(worker, next(iter(worker.running)))
            self.a_stop_is_over_in_time()
        assert len(ledger.records) == ledger.answered + ledger.cancelled
        assert ledger.retained() == []
        self.body.pass_time(policy.longest_stop_s)
        assert self.machine.next_deadline() is None


Outside.TestCase.settings = settings(
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=150,
    stateful_step_count=60,
    suppress_health_check=[HealthCheck.too_slow],
)
TestTheCoreKeepsItsPromises = Outside.TestCase


@pytest.mark.parametrize("seed", range(90))
def test_the_core_keeps_its_promises_on_a_long_walk(seed: int) -> None:
    """The same rules by chance alone: hundreds of steps, and more work and deaths than Hypothesis would think of."""
    rng = random.Random(seed)
    outside = Outside()
    outside.begin(placement=PLACEMENTS[seed % 3], policy=POLICIES[seed // 3 % 3], seed=seed)
    steps: list[tuple[int, Callable[[], None]]] = [
        (6, lambda: outside.all_come_up(lanes=rng.randint(1, 3))),
        (6, lambda: outside.submit(rng.choice(CLIENTS), rng.choice(MODELS), rng.choice(TIMEOUTS), rng.randint(0, 60))),
        (4, lambda: outside.submit_many(rng.choice(CLIENTS), rng.choice(MODELS), count=rng.randint(2, 8))),
        (1, lambda: outside.use_a_number_again(rng.randrange(5), rng.choice(MODELS), rng.choice(TIMEOUTS))),
        (1, lambda: outside.cancel(rng.randrange(20))),
        (1, lambda: outside.client_goes(rng.choice(CLIENTS))),
        (1, lambda: outside.beats(rng.randrange(9), rng.choice(list(Phase)))),
        (6, lambda: outside.answers(rng.randrange(9))),
        (3, lambda: outside.answers_many(count=8)),
        (1, lambda: outside.answers_with_an_error(rng.randrange(9))),
        (2, lambda: outside.does_as_it_was_told(rng.randrange(9))),
        (1, lambda: outside.dies(rng.randrange(9))),
        (2, lambda: outside.dies_while_it_runs(rng.randrange(9))),
        (1, lambda: outside.dies_for_good(rng.randrange(9), chance=rng.randrange(30))),
        (1, lambda: outside.answers_a_wrong_number_of_parts(rng.randrange(9), parts=rng.choice([0, 2]))),
        (1, lambda: outside.spawning_fails(rng.random() < 0.1)),
        (1, lambda: outside.somebody_else_speaks(rng.randint(-1, 5), rng.randint(0, 6), rng.randint(0, 99), seed % 6)),
        (6, lambda: outside.time_passes(rng.choice(PAUSES_S))),
        (1, lambda: outside.the_pool_sleeps(rng.choice(PAUSES_S), chance=0)),
        (1, lambda: outside.stop_is_asked(chance=rng.randrange(20))),
    ]
    weights = [weight for weight, _ in steps]
    for _, step in rng.choices(steps, weights, k=250):
        step()
        outside.no_job_is_overdue()
        outside.the_core_holds_the_open_jobs_and_no_other()
        outside.a_stop_is_over_in_time()
    outside.teardown()
