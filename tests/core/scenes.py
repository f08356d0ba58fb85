"""Short programs for what a random walk meets too seldom. Each takes the core, plain or broken, and asserts."""

from typing import Any


class Scene:
    """One model, one account, so many workers of one lane each; what is told is kept."""

    def __init__(self, core: Any, workers: int = 1, policy: Any = None, is_joined: bool = False, **model: Any) -> None:
        self.core = core
        self.failed: list[tuple[int, str]] = []
        self.scheduler = core.Scheduler(
            policy or core.Policy(), lambda job, error, *_: self.failed.append((job.number, error)), lambda _: None
        )
        self.scheduler.add_model("m", core.ModelPolicy(**model))
        self.account = core.Account()
        self.call = self.scheduler.call("m", "key", 1, is_joined)
        self.workers = [self.come(slot) for slot in range(workers)]
        self.numbers = 0

    def come(self, slot: int) -> Any:
        worker = self.scheduler.worker_comes(slot, ["m"])
        self.scheduler.lane_comes(worker, b"%d" % slot)
        return worker

    def submit(self, count: int = 1, timeout_s: float = 50.0, call: Any = None) -> None:
        for _ in range(count):
            self.numbers += 1
            job = self.core.Job(self.account, b"", self.numbers, call or self.call, b"body", 4, 0.0, timeout_s)
            self.scheduler.submit(job)

    def batches(self, now: float = 0.0) -> list[Any]:
        return [*self.scheduler.dispatch(now)]

    def done(self, batch: Any, *outcomes: str | None, joined: bool = True, now: float = 0.0) -> list[Any]:
        ended: list[Any] = self.scheduler.batch_done(batch.worker, batch.lane, batch.number, joined, outcomes, now)
        return [None if job is None else job.number for job in ended]


def one_bad_job_of_sixteen_is_found_in_ten_runs(core: Any) -> None:
    scene = Scene(core, is_joined=True, max_batch=16)
    scene.submit(16)
    runs, answered = 0, []
    while batches := scene.batches():
        (batch,) = batches
        runs += 1
        assert runs <= 9, "sixteen, two eights, two fours, four alone"
        numbers = [job.number for job in batch.jobs]
        is_bad = 11 in numbers
        ended = scene.done(batch, *["ModelFailed" if is_bad else None] * len(numbers))
        answered += [number for number in ended if number is not None]
    assert sorted(answered) == [*range(1, 17)]


def suspects_take_one_worker_at_a_time_from_the_others(core: Any) -> None:
    scene = Scene(core, workers=4)
    for worker in scene.workers:
        scene.scheduler.lane_comes(worker, b"second")
    scene.submit(20)
    running = scene.batches()
    dead = running[0].worker
    scene.scheduler.worker_died(dead, "SIGKILL", 0.0)
    for worker in scene.workers:
        if worker is not dead:
            batch = next(iter(worker.running.values()))
            scene.done(batch, None, joined=False)
    scene.batches()
    reserved = [worker for worker in scene.scheduler.workers if worker.reserved is not None]
    assert len(scene.scheduler.models["m"].suspects) == 2
    assert len(reserved) == 1, "two suspects of a model hold up one worker, not two"
    (batch,) = reserved[0].running.values()
    scene.done(batch, None, joined=False)
    (trial,) = [batch for batch in scene.batches() if batch.worker is reserved[0]]
    assert trial.jobs[0] in [job for batch in running if batch.worker is dead for job in batch.jobs]


def halves_of_a_failed_batch_end_though_the_pool_stops(core: Any) -> None:
    scene = Scene(core, is_joined=True)
    scene.submit(2)
    (batch,) = scene.batches()
    scene.done(batch, None, "ModelFailed")
    scene.submit(1)
    scene.scheduler.stop_taking()
    assert scene.failed == [(3, "Stopping")], "what has not started is handed back, and nothing else"
    (again,) = scene.batches()
    assert scene.done(again, "ModelFailed") == [2]


def kills_of_former_pools_count(core: Any) -> None:
    scene = Scene(core)
    scene.scheduler.submit(core.Job(scene.account, b"", 1, scene.call, b"body", 4, 0.0, 50.0, 0, 3))
    scene.batches()
    scene.scheduler.worker_died(scene.workers[0], "SIGKILL", 0.0)
    assert scene.failed == [(1, "Quarantined")]


def pinned_jobs_hold_up_no_suspect(core: Any) -> None:
    scene = Scene(core, workers=2)
    scene.submit()
    (first,) = scene.batches()
    dead, other = first.worker, next(each for each in scene.workers if each is not first.worker)
    scene.submit(3, call=scene.scheduler.call("m", "key", 1, False, slot=other.slot))
    (running,) = scene.batches()
    scene.scheduler.worker_died(dead, "SIGKILL", 0.0)
    ran = []
    for _ in range(3):
        scene.done(running, None, joined=False)
        (running,) = scene.batches()
        ran.append(running.jobs[0].number)
    assert ran[0] == 1, f"the suspect runs as soon as the worker has nothing else to run, not after {ran}"


def pinned_jobs_take_no_turns_of_others(core: Any) -> None:
    """A model pays for its pinned jobs, but they put no model that comes later behind the others."""
    scene = Scene(core)
    scheduler, now = scene.scheduler, 0.0
    for name in ("pinned", "late"):
        scheduler.add_model(name, core.ModelPolicy())
    (worker,) = scene.workers
    scheduler.close(worker)
    scheduler.worker_died(worker, "told to end", 0.0)
    worker = scheduler.worker_comes(0, ["m", "pinned", "late"])
    scheduler.lane_comes(worker, b"1")
    assert scene.batches() == [], "all are idle"
    calls = {name: scheduler.call(name, "key", 1, False) for name in ("m", "late")}
    calls["pinned"] = scheduler.call("pinned", "key", 1, False, slot=0)
    ran = []
    for number, name in enumerate(["m"] * 6 + ["pinned"] * 3 + ["late"] * 3):
        scheduler.submit(core.Job(scene.account, b"", number, calls[name], b"body", 4, now, now + 500.0))
        if name == "pinned":
            now += 10.0
            (batch,) = scene.batches(now)
            scene.done(batch, None, joined=False, now=now + 10.0)
    for _ in range(9):
        (batch,) = scene.batches(now)
        ran.append(batch.model.name)
        now += 1.0
        scene.done(batch, None, joined=False, now=now)
    assert "late" in ran[:3], f"it waits while another model makes up for what the pinned jobs took: {ran}"


def what_one_group_leaves_over_goes_to_the_next(core: Any) -> None:
    scene = Scene(core, workers=0)
    for slot, name in enumerate(("first", "second")):
        scene.scheduler.add_model(name, core.ModelPolicy())
        scene.scheduler.lane_comes(scene.scheduler.worker_comes(slot, ["m", name]), b"%d" % slot)
    assert scene.batches() == [], "all are idle"
    scene.submit(call=scene.scheduler.call("first", "key", 1, False))
    scene.submit()
    assert len(scene.batches()) == 2, "the first slot runs its own model's job, and the other one is idle"


def a_pinned_suspect_runs_again_in_its_slot(core: Any) -> None:
    scene = Scene(core, workers=2)
    scene.submit(call=scene.scheduler.call("m", "key", 1, False, slot=0))
    (batch,) = scene.batches()
    scene.scheduler.worker_died(batch.worker, "SIGKILL", 0.0)
    assert scene.batches() == []
    scene.come(0)
    (again,) = scene.batches()
    assert again.worker.slot == 0


SCENES = (
    what_one_group_leaves_over_goes_to_the_next,
    a_pinned_suspect_runs_again_in_its_slot,
    pinned_jobs_hold_up_no_suspect,
    pinned_jobs_take_no_turns_of_others,
    one_bad_job_of_sixteen_is_found_in_ten_runs,
    suspects_take_one_worker_at_a_time_from_the_others,
    halves_of_a_failed_batch_end_though_the_pool_stops,
    kills_of_former_pools_count,
)
