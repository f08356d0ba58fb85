"""Whatever workers, clients and time do in whatever order: the core keeps its promises.

The rules are the outside: the fake body obeys the core, and each rule is one thing that can happen to it.
"""

import json
import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from simulation.body import HOPELESS, SIGSEGV, STOPPED, Body, Worker
from simulation.plans import model_info, slot_plan
from simulation.words import Failed, RowsChanged, Spoiled, Succeeded

from pool.core.policy import ModelPolicy, Policy
from pool.wire.faults import Fault
from pool.wire.independence import Batching, RowsCompared
from pool.wire.signatures import DEFAULT_SIGNATURE
from pool.wire.worker_messages import Phase

INFOS = {
    "pure": model_info("pure"),
    "waits": model_info("waits"),
    "padded": model_info("padded"),
    "counter": model_info("counter", stateful=True),
    "lone": model_info("lone", batchable=False),
}
MODELS = {
    "pure": ModelPolicy(max_batch=8, weight=2.0),
    "waits": ModelPolicy(max_batch=4, batch_wait_s=1.0),
    "padded": ModelPolicy(
        max_batch=16, allowed_batch_sizes=(2, 6, 16), max_jobs=9, max_bytes=150, batching=Batching.AUTO
    ),
}
PLACEMENTS = (
    (("pure",),),
    (("pure", "counter"), ("pure", "waits"), ()),
    (("pure",), ("pure", "counter", "waits"), ("counter", "lone"), ("lone", "padded")),
    (("pure", "padded", "lone"), ("pure", "padded", "lone"), ("pure", "padded", "waits"), ("pure",)),
)
SETS = tuple(sorted({models for placement in PLACEMENTS for models in placement}))
POLICIES = (
    Policy(max_jobs=24, max_bytes=400, default_timeout_s=20.0, hung_floor_s=10.0, models=MODELS),
    Policy(
        max_jobs=24,
        max_attempts=1,
        restart_intensity=1,
        hung_after_s=4.0,
        ready_needs_all=False,
        models=MODELS,
        client_max_jobs=9,
        client_max_bytes=300,
    ),
    Policy(max_jobs=60, max_attempts=4, restart_intensity=50, backoff_max_s=1.0, drain_timeout_s=3.0, models=MODELS),
    Policy(
        max_jobs=60,
        silent_after_s=30.0,
        recycle_age_s=40.0,
        recycle_jobs=10,
        recycle_bytes=1 << 30,
        min_ready=2,
        models=MODELS,
    ),
    Policy(max_jobs=60, max_attempts=3, successor="always", recycle_age_s=5.0, import_timeout_s=20.0, models=MODELS),
    Policy(max_jobs=60, successor="never", recycle_jobs=20, min_ready=2, models=MODELS),
    Policy(max_jobs=60, standby=True, restart_intensity=20, restart_period_s=5.0, recycle_jobs=30, models=MODELS),
)
# Not fewer attempts: what a job has lost already would be more than it may.
OTHERS: tuple[dict[str, object], ...] = (
    {"max_jobs": 3, "max_bytes": 90},
    {"max_jobs": 80, "max_bytes": 4000, "client_max_jobs": None},
    {"default_timeout_s": 2.0, "hung_after_s": 5.0, "restart_intensity": 3, "backoff_max_s": 0.2},
    {"load_timeout_s": 20.0, "import_timeout_s": 5.0, "ready_needs_all": False, "hung_after_s": None},
    {"models": {}},
    {"successor": "never", "min_ready": 1},
    {"successor": "always"},
    {"standby": True},
    {"standby": False},
    {"models": MODELS},
    {"models": {name: ModelPolicy(max_batch=2, batch_wait_s=0.5, weight=0.1, max_jobs=2) for name in ("pure", "lone")}},
    {"models": {name: ModelPolicy(3, 0.0, (1, 3), 5.0, None, 40) for name in ("pure", "waits", "padded")}},
    {"models": {name: ModelPolicy(40, 3.0, (5, 40), 1.0) for name in ("pure", "padded", "counter")}},
)
CLIENTS = (b"a", b"b", b"c")
NAMES = ("pure", "pure", "pure", "counter", "waits", "padded", "padded", "lone", "unknown")
TIMEOUTS = (None, None, 0.0, 0.5, 3.0, 30.0, 300.0, math.nan, math.inf, -1.0)
ROWS = (None, 1, 1, 1, 2, 3, 7, 20)
PRIORITIES = (0, 0, 0, 5, -100, 100, 101)
DEVICES = (None, None, None, None, "slot:1", "gpu:0", "gpu:1", "nowhere")
VERSIONS = (None, None, None, None, None, None, 1, 2, 3, "stable")
FORMS = (b"form", b"form", b"other form")
OUTPUTS = (None, None, ("y",))
PAUSES_S = (0.0, 0.01, 0.3, 1.0, 3.0, 11.0, 70.0)
OUTCOMES = (
    Succeeded("not to be used"),
    Failed(Fault.MODEL_FAILED, "of the model"),
    Failed(Fault.OUT_OF_MEMORY, "no memory for one"),
    Failed(Fault.INVALID_INPUT, "a feed has another dtype"),
    Spoiled(Fault.MODEL_FAILED, "somebody's"),
    Spoiled(Fault.OUT_OF_MEMORY, "no memory for all"),
)
clients, names, timeouts_s, rows_, priorities, devices, forms, outputs_, versions_ = map(
    st.sampled_from, (CLIENTS, NAMES, TIMEOUTS, ROWS, PRIORITIES, DEVICES, FORMS, OUTPUTS, VERSIONS)
)
packs = st.lists(st.sampled_from((1, 1, 1, 2, 5, 20)), min_size=1, max_size=12)
bad = st.sets(st.integers(0, 40), max_size=2)
attempts_ = st.sampled_from((0, 0, 0, 1, 2))
PICK = st.integers(0, 1 << 16)
SLACK_S = 1e-6


class Outside(RuleBasedStateMachine):
    @initialize(placement=st.sampled_from(PLACEMENTS), policy=st.sampled_from(POLICIES), seed=st.integers(0, 99))
    def begin(self, placement: tuple[tuple[str, ...], ...], policy: Policy, seed: int) -> None:
        self.rng = random.Random(seed)
        plans = [slot_plan(number, models, {"pure": 1, "counter": 1}) for number, models in enumerate(placement)]
        self.body = Body(policy, plans, INFOS, self.rng, validates=True)
        self.core = self.body.core
        self.numbers = 0
        self.slept_s = 0.0
        self.ends_at: float | None = None
        self.core.start()

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

    @rule(
        client=clients,
        model=names,
        timeout_s=timeouts_s,
        rows=rows_,
        priority=priorities,
        device=devices,
        size_bytes=st.integers(0, 60),
        version=versions_,
    )
    def submit(
        self,
        client: bytes,
        model: str,
        timeout_s: float | None,
        rows: int | None,
        priority: int,
        device: str | None,
        size_bytes: int,
        version: int | str | None,
    ) -> None:
        self.numbers += 1
        self.body.submit(
            client,
            self.numbers,
            model,
            rows=rows,
            timeout_s=timeout_s,
            priority=priority,
            device=device,
            size_bytes=size_bytes,
            version=version,
        )

    @rule(client=clients, model=names, rows=rows_, attempts=st.integers(0, 3))
    def submit_what_a_former_pool_may_have_started(
        self, client: bytes, model: str, rows: int | None, attempts: int
    ) -> None:
        self.numbers += 1
        self.body.submit(
            client, self.numbers, model, rows=rows, timeout_s=60.0, attempts=attempts, in_doubt=True, kills=attempts > 1
        )

    @rule(client=clients, model=names, count=st.integers(2, 12), rows=rows_, form=forms, outputs=outputs_)
    def submit_many(
        self, client: bytes, model: str, count: int, rows: int | None, form: bytes, outputs: tuple[str, ...] | None
    ) -> None:
        for _ in range(count):
            self.numbers += 1
            self.body.submit(client, self.numbers, model, rows=rows, timeout_s=30.0, form=form, outputs=outputs)

    @rule(
        client=clients,
        model=names,
        members=packs,
        timeout_s=timeouts_s,
        priority=priorities,
        device=devices,
        form=forms,
        outputs=outputs_,
        attempts=attempts_,
        kills=bad,
        guilty=bad,
        version=versions_,
    )
    def submit_a_pack(
        self,
        client: bytes,
        model: str,
        members: list[int],
        timeout_s: float | None,
        priority: int,
        device: str | None,
        form: bytes,
        outputs: tuple[str, ...] | None,
        attempts: int,
        kills: set[int],
        guilty: set[int],
        version: int | str | None,
    ) -> None:
        """A poisonous member kills its worker; with a guilty one the run fails, whenever that is by rule."""
        number, self.numbers = self.numbers + 1, self.numbers + 1 + len(members)
        self.body.submit(
            client,
            number,
            model,
            timeout_s=timeout_s,
            priority=priority,
            device=device,
            size_bytes=7 * len(members),
            form=form,
            outputs=outputs,
            attempts=attempts,
            in_doubt=attempts > 0,
            kills={index for index in kills if index < len(members)},
            guilty={index for index in guilty if index < len(members)},
            members=tuple(members),
            version=version,
        )

    @rule(client=clients, count=st.integers(2, 8), device=devices, version=versions_)
    def submit_poison(self, client: bytes, count: int, device: str | None, version: int | str | None) -> None:
        for number in range(count):
            self.numbers += 1
            self.body.submit(
                client,
                self.numbers,
                "pure",
                rows=2,
                timeout_s=300.0,
                kills=number == 1,
                device=device,
                version=version,
            )

    @rule(pick=PICK, model=names, timeout_s=timeouts_s)
    def use_a_number_again(self, pick: int, model: str, timeout_s: float | None) -> None:
        if recent := list(self.body.ledger.recent)[-5:]:
            record = recent[pick % len(recent)]
            members = (1, 2) if pick % 3 == 0 else ()
            self.body.submit(
                record.client, record.number - pick % 2, model, rows=1, timeout_s=timeout_s, members=members
            )

    @rule(pick=PICK)
    def cancel(self, pick: int) -> None:
        if recent := self.body.ledger.recent:
            record = recent[pick % len(recent)]
            self.core.cancel(record.client, record.number)

    @rule(pick=PICK)
    def cancel_a_whole_pack(self, pick: int) -> None:
        """As one job, or what is left of it since it was taken apart."""
        held = [(pack.client, pack.number) for pack in self.core.packs()] + self.core.parted()
        if held:
            self.core.cancel(*held[pick % len(held)])

    @rule(pick=PICK, member=PICK)
    def cancel_a_member(self, pick: int, member: int) -> None:
        """Of a pack of which some has begun, if there is one."""
        held = self.core.packs()
        if held := [pack for pack in held if pack.begun] or held:
            pack = held[pick % len(held)]
            self.core.cancel(pack.client, pack.number + 1 + member % pack.size)

    @rule(client=clients)
    def client_goes(self, client: bytes) -> None:
        self.core.client_gone(client)

    @rule(about=st.sampled_from(["", "1", "7", "40", "-1", "x", "9" * 50]))
    def somebody_asks(self, about: str) -> None:
        story = self.core.explain(about)
        json.dumps([story, self.core.models_snapshot()])
        assert about != "" or story is not None

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

    @rule(model=st.sampled_from(["pure", "counter"]), version=st.sampled_from([1, 2, 3]))
    def another_version_is_to_be_served(self, model: str, version: int) -> None:
        """By who is welcomed from now on; who serves already has what it has."""
        self.body.versions[model] = version

    @rule(pick=PICK, models=st.sampled_from(SETS), chance=st.integers(0, 3))
    def a_slot_is_to_have_other_models(self, pick: int, models: tuple[str, ...], chance: int) -> None:
        if chance == 0:
            self.body.plan(pick % len(self.body.planned), models)

    @rule(pick=PICK, phase=st.sampled_from(Phase))
    def beats(self, pick: int, phase: Phase) -> None:
        if (worker := self.worker(pick, helloed=True)) is not None:
            self.core.beat(worker.slot, worker.incarnation, phase, "m")

    @rule(pick=PICK)
    def answers(self, pick: int) -> None:
        """A poisonous job kills its worker instead, a guilty one makes its run fail."""
        if (found := self.running(pick)) is not None:
            worker, batch = found
            if worker.running[batch].kills:
                self.body.exit(worker, SIGSEGV)
            elif worker.running[batch].guilty:
                self.the_run_fails(pick, Fault.MODEL_FAILED)
            else:
                self.body.answer(worker, batch, times_s=(1e-7 * (pick % 3), 0.0))

    @rule(count=st.integers(1, 10))
    def answers_many(self, count: int) -> None:
        for _ in range(count):
            self.answers(self.rng.randrange(100))

    @rule(pick=PICK, fault=st.sampled_from([Fault.MODEL_FAILED, Fault.OUT_OF_MEMORY]))
    def the_run_fails(self, pick: int, fault: Fault) -> None:
        """A lone part by its own fault; of several, nobody knows whose it is."""
        if (found := self.running(pick)) is not None:
            worker, batch = found
            parts = len(worker.running[batch].parts)
            kind = Failed if parts == 1 else Spoiled
            self.body.answer(worker, batch, (kind(fault, "of the run"),) * parts)

    @rule(pick=PICK)
    def rows_differ(self, pick: int) -> None:
        if (found := self.running(pick)) is not None and found[0].running[found[1]].by_rows:
            worker, batch = found
            self.body.answer(worker, batch, (RowsChanged("3 rows of 5"),) * len(worker.running[batch].parts))

    @rule(pick=PICK, count=st.sampled_from((1, 20, 80, 80)), differs=st.sampled_from(("", "", "", "", "apart")))
    def rows_are_compared(self, pick: int, count: int, differs: str) -> None:
        """Jobs of a model whose rows are to be proven independent have run both ways."""
        worker = self.worker(pick, ready=True)
        if worker is not None:
            compared = RowsCompared("padded", "", DEFAULT_SIGNATURE, ("y",), "", True)
            for _ in range(count):
                self.core.compared(worker.slot, worker.incarnation, 0, compared)
            if differs:
                differing = replace(compared, differs=differs)
                self.core.compared(worker.slot, worker.incarnation, 0, differing)

    @rule(pick=PICK, seed=st.integers(0, 1 << 16))
    def each_part_ends_in_its_own_way(self, pick: int, seed: int) -> None:
        if (found := self.running(pick)) is not None:
            worker, batch = found
            running = worker.running[batch]
            outcomes = random.Random(seed).choices(OUTCOMES, k=len(running.parts))
            self.body.answer(
                worker,
                batch,
                tuple(
                    Succeeded(part) if isinstance(outcome, Succeeded) else outcome
                    for part, outcome in zip(running.parts, outcomes, strict=True)
                ),
            )

    @rule(pick=PICK)
    def does_as_it_was_told(self, pick: int) -> None:
        """A kill takes effect, or a worker that was told to stop has stopped."""
        if (worker := self.worker(pick, killed=True) or self.worker(pick, told_to_stop=True)) is not None:
            self.body.exit(worker, STOPPED)

    @rule(pick=PICK)
    def stands_by(self, pick: int) -> None:
        if (worker := self.worker(pick, held=True)) is not None:
            self.core.beat(worker.slot, worker.incarnation, Phase.STANDING_BY)

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

    @rule(pick=PICK)
    def cannot_be_reached(self, pick: int) -> None:
        if (found := self.running(pick)) is not None:
            self.body.cannot_reach(*found)

    @rule(pick=PICK, more=st.sampled_from([-100, -1, 1, 2]))
    def answers_a_wrong_number_of_parts(self, pick: int, more: int) -> None:
        if (found := self.running(pick)) is not None:
            worker, batch = found
            parts = max(0, len(worker.running[batch].parts) + more)
            self.body.answer(worker, batch, (Succeeded(-1),) * parts)

    @rule(pick=PICK)
    def says_ready_without_its_models(self, pick: int) -> None:
        if (worker := self.worker(pick, welcomed=True, ready=False)) is not None:
            self.body.say_ready(worker, lanes=2, models=0)

    @rule(fails=st.booleans())
    def spawning_fails(self, fails: bool) -> None:
        self.body.spawn_fails = fails

    @rule(slot=st.integers(-1, 5), incarnation=st.integers(0, 6), batch=st.integers(0, 40), which=st.integers(0, 10))
    def somebody_else_speaks(self, slot: int, incarnation: int, batch: int, which: int) -> None:
        """An incarnation that is gone, was never spawned, or has no seat at all."""
        if (slot, incarnation) in self.body.workers:
            return
        core = self.core
        says: tuple[Callable[[], object], ...] = (
            lambda: core.held_up(slot, incarnation, "waiting for gpu:0"),
            lambda: core.refused(slot, incarnation, "gpu:0 has no room for two"),
            lambda: core.device_free(slot, incarnation),
            lambda: core.device_taken(slot, incarnation, "waited in vain"),
            lambda: core.spawned(slot, incarnation, 1),
            lambda: core.hello(slot, incarnation),
            lambda: core.beat(slot, incarnation, Phase.LOADING),
            lambda: core.ready(slot, incarnation, 2, (INFOS["pure"],)),
            lambda: core.done(slot, incarnation, 0, batch, (Succeeded(-1),)),
            lambda: core.unsent(slot, incarnation, batch),
            lambda: core.died(slot, incarnation, SIGSEGV),
        )
        says[which]()

    @rule(pick=PICK, batch=st.integers(0, 100))
    def answers_a_batch_that_it_does_not_have(self, pick: int, batch: int) -> None:
        worker = self.worker(pick)
        if worker is not None and batch not in worker.running:
            self.core.done(worker.slot, worker.incarnation, 0, batch, (Succeeded(-1),))

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
            self.core.tick()

    @rule(slot=st.integers(-1, 9), chance=st.integers(0, 2), sparing=st.booleans())
    def a_restart_is_asked(self, slot: int, chance: int, sparing: bool = False) -> None:
        if chance == 0:
            self.core.restart(slot, sparing)

    @rule(has_room=st.booleans())
    def devices_have_room_for_two(self, has_room: bool) -> None:
        self.body.has_room = has_room

    @rule(slot=st.integers(-1, 9), chance=st.integers(0, 3))
    def a_drain_is_asked(self, slot: int, chance: int) -> None:
        if chance == 0:
            self.core.drain(slot)

    @rule(slot=st.integers(-1, 5), incarnation=st.integers(0, 6), resident_bytes=st.integers(0, 2 << 30))
    def memory_is_measured(self, slot: int, incarnation: int, resident_bytes: int) -> None:
        self.core.measured(slot, incarnation, resident_bytes)

    @rule(chance=st.integers(0, 9))
    def stop_is_asked(self, chance: int) -> None:
        if chance == 0:
            self.ask("the test asked")

    def change_policy(self, other: dict[str, object]) -> None:
        self.core.policy_changed(replace(self.core.policy, **other))  # type: ignore[arg-type]

    def ask(self, reason: str) -> None:
        if self.ends_at is None:
            self.ends_at = self.body.now - self.slept_s + self.core.policy.longest_stop_s
        self.core.stop(reason)

    # --- promises -------------------------------------------------------------------------------------------------

    @invariant()
    def the_core_holds_the_open_jobs_and_no_other(self) -> None:
        ledger = self.body.ledger
        assert self.core.held() == ledger.open.keys()
        assert sum(self.core.answered.values()) == ledger.answered + ledger.cancelled + ledger.refused
        assert ledger.retained() == []

    @invariant()
    def a_stop_is_over_in_time(self) -> None:
        if self.ends_at is not None and self.body.ledger.stopped is None:
            assert self.body.now - self.slept_s <= self.ends_at + SLACK_S

    def teardown(self) -> None:
        """The end, with workers of which some obey, some must be killed, and some are stuck in the kernel."""
        if not hasattr(self, "body"):
            return
        policy, ledger = self.core.policy, self.body.ledger
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
        assert ledger.arrived == ledger.answered + ledger.cancelled
        assert ledger.retained() == []
        self.body.pass_time(policy.longest_stop_s)
        assert self.core.next_deadline() is None


class Changing(Outside):
    """The same, and somebody changes the configuration now and then."""

    @rule(other=st.sampled_from(OTHERS), chance=st.integers(0, 2))
    def the_policy_changes(self, other: dict[str, object], chance: int) -> None:
        if chance == 0:
            self.change_policy(other)


Outside.TestCase.settings = Changing.TestCase.settings = settings(
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=150,
    stateful_step_count=60,
    suppress_health_check=[HealthCheck.too_slow],
)
TestTheCoreKeepsItsPromises = Outside.TestCase
TestTheCoreKeepsThemWhileItsPolicyChanges = pytest.mark.long(Changing.TestCase)


def walk(seed: int, steps: int, *, changing: bool = False) -> Outside:
    """The same rules by chance alone: hundreds of steps, and more work and deaths than Hypothesis would think of."""
    rng = random.Random(seed)
    outside = Outside()
    outside.begin(placement=PLACEMENTS[seed % 4], policy=POLICIES[seed // 4 % len(POLICIES)], seed=seed)
    choose = rng.choice
    moves: list[tuple[int, Callable[[], None]]] = [
        (6, lambda: outside.all_come_up(lanes=rng.randint(1, 3))),
        (
            6,
            lambda: outside.submit(
                choose(CLIENTS),
                choose(NAMES),
                choose(TIMEOUTS),
                choose(ROWS),
                choose(PRIORITIES),
                choose(DEVICES),
                rng.randint(0, 60),
                choose(VERSIONS),
            ),
        ),
        (
            5,
            lambda: outside.submit_many(
                choose(CLIENTS), choose(NAMES), rng.randint(2, 12), choose(ROWS), choose(FORMS), choose(OUTPUTS)
            ),
        ),
        (
            2,
            lambda: outside.submit_what_a_former_pool_may_have_started(
                choose(CLIENTS), choose(NAMES), choose(ROWS), rng.randint(0, 3)
            ),
        ),
        (1, lambda: outside.submit_poison(choose(CLIENTS), rng.randint(2, 8), choose(DEVICES), choose(VERSIONS))),
        (
            6,
            lambda: outside.submit_a_pack(
                choose(CLIENTS),
                choose(NAMES),
                rng.choices((1, 1, 1, 1, 2, 5, 20), k=rng.randint(1, 20)),
                choose(TIMEOUTS),
                choose(PRIORITIES),
                choose(DEVICES),
                choose(FORMS),
                choose(OUTPUTS),
                choose((0, 0, 0, 0, 1, 2)),
                {rng.randrange(60)},
                {rng.randrange(60)},
                choose(VERSIONS),
            ),
        ),
        (1, lambda: outside.cancel_a_whole_pack(rng.randrange(20))),
        (2, lambda: outside.cancel_a_member(rng.randrange(20), rng.randrange(20))),
        (1, lambda: outside.use_a_number_again(rng.randrange(5), choose(NAMES), choose(TIMEOUTS))),
        (1, lambda: outside.cancel(rng.randrange(20))),
        (1, lambda: outside.client_goes(choose(CLIENTS))),
        (1, lambda: outside.another_version_is_to_be_served(choose(["pure", "counter"]), rng.randint(1, 3))),
        (1, lambda: outside.a_slot_is_to_have_other_models(rng.randrange(9), choose(SETS), rng.randrange(4))),
        (2, lambda: outside.stands_by(rng.randrange(9))),
        (1, lambda: outside.beats(rng.randrange(9), choose(list(Phase)))),
        (6, lambda: outside.answers(rng.randrange(9))),
        (3, lambda: outside.answers_many(count=8)),
        (1, lambda: outside.the_run_fails(rng.randrange(9), choose([Fault.MODEL_FAILED, Fault.OUT_OF_MEMORY]))),
        (1, lambda: outside.rows_differ(rng.randrange(9)) if rng.random() < 0.2 else None),
        (1, lambda: outside.each_part_ends_in_its_own_way(rng.randrange(9), rng.randrange(999))),
        (2, lambda: outside.does_as_it_was_told(rng.randrange(9))),
        (1, lambda: outside.dies(rng.randrange(9))),
        (2, lambda: outside.a_restart_is_asked(rng.randrange(9), rng.randrange(3), rng.random() < 0.5)),
        (1, lambda: outside.devices_have_room_for_two(rng.random() < 0.7)),
        (1, lambda: outside.a_drain_is_asked(rng.randint(-1, 5), rng.randint(0, 3))),
        (1, lambda: outside.memory_is_measured(rng.randint(0, 3), rng.randint(0, 4), rng.randint(0, 2 << 30))),
        (2, lambda: outside.dies_while_it_runs(rng.randrange(9))),
        (1, lambda: outside.dies_for_good(rng.randrange(9), chance=rng.randrange(30))),
        (1, lambda: outside.cannot_be_reached(rng.randrange(9))),
        (1, lambda: outside.answers_a_wrong_number_of_parts(rng.randrange(9), more=choose([-1, 1]))),
        (1, lambda: outside.spawning_fails(rng.random() < 0.1)),
        (
            1,
            lambda: outside.somebody_else_speaks(
                rng.randint(-1, 5), rng.randint(0, 6), rng.randint(0, 99), rng.randrange(11)
            ),
        ),
        (6, lambda: outside.time_passes(choose(PAUSES_S))),
        (1, lambda: outside.the_pool_sleeps(choose(PAUSES_S), chance=0)),
        (1, lambda: outside.stop_is_asked(chance=rng.randrange(20))),
    ]
    if changing:
        moves.append((1, lambda: outside.change_policy(choose(OTHERS))))
    weights = [weight for weight, _ in moves]
    for _, move in rng.choices(moves, weights, k=steps):
        move()
        outside.the_core_holds_the_open_jobs_and_no_other()
        outside.a_stop_is_over_in_time()
    return outside


@pytest.mark.parametrize("seed", range(96))
def test_the_core_keeps_its_promises_on_a_long_walk(seed: int) -> None:
    walk(seed, steps=250).teardown()


@pytest.mark.parametrize("seed", range(24))
def test_the_core_keeps_its_promises_on_a_walk_on_which_its_policy_changes(seed: int) -> None:
    walk(seed, steps=250, changing=True).teardown()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_core_keeps_its_promises_on_many_walks() -> None:
    for seed in range(1000, 4000):
        print(f"seed {seed}")  # noqa: T201  # the last one that is printed is the one to run again
        walk(seed, steps=400).teardown()
