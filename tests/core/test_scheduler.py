"""What the scheduler promises, one example each. The walks look for what these do not think of."""

import gc
from itertools import count
from types import SimpleNamespace

from core.scenes import Scene
from pool.core import jobs, scheduler
from pool.core.dispatcher import Policy
from pool.core.jobs import Account, Batch, Job, ModelPolicy
from pool.core.scheduler import Scheduler
from support.counting import counted

CORE = SimpleNamespace(**{**vars(jobs), **vars(scheduler)})


def calls_of_a_lone_job(slots: int, models: int, is_shared: bool = False) -> float:
    """Each slot serves all models; or its own one, beside the first, which is then asked for alone."""
    scheduler = Scheduler(Policy(), lambda *_: None, lambda _: None)
    names = [f"m{index}" for index in range(models)]
    for name in names:
        scheduler.add_model(name, ModelPolicy())
    for slot in range(slots):
        worker = scheduler.worker_comes(slot, [names[0], names[slot + 1]] if is_shared else names)
        scheduler.lane_comes(worker, b"1")
        scheduler.lane_comes(worker, b"2")
    account, calls = Account(), [scheduler.call(name, "key", 1, True) for name in names[: 1 if is_shared else None]]
    numbers = count()

    def run() -> None:
        number = next(numbers)
        now = float(number)
        job = Job(account, b"", number, calls[number % len(calls)], b"body", 4, now, now + 60.0)
        scheduler.submit(job)
        (batch,) = scheduler.dispatch(now)
        assert scheduler.batch_done(batch.worker, batch.lane, batch.number, True, [None], now + 0.001) == [job]

    for _ in range(12 * models):
        run()
    return counted(run, jobs=1)


def test_slots_and_models_that_have_nothing_to_do_cost_a_job_nothing() -> None:
    few = calls_of_a_lone_job(slots=1, models=1)
    assert calls_of_a_lone_job(slots=1000, models=200) <= few + 2, "but for what is tidied up now and then"
    assert calls_of_a_lone_job(slots=100, models=101, is_shared=True) <= few + 2, "its other slots are not looked at"


def test_jobs_that_ended_are_not_kept_by_what_waits() -> None:
    """Behind one early deadline, and in a model that nobody serves."""
    scene = Scene(CORE, 0)
    scheduler = scene.scheduler
    scene.submit(1)
    for number in range(2, 5000):
        call = scheduler.call("m", f"shape {number % 1000}", 1, True)
        scheduler.submit(Job(scene.account, b"", number, call, b"body", 4, 0.0, 3600.0))
        scheduler.cancel(scene.account, b"", number)
    model = scheduler.models["m"]
    del call
    gc.collect()
    assert len(scheduler._deadlines) < 100
    assert len(model.heads) < 100
    assert len(model.lines) < 100, "lines of shapes that came once are forgotten"


def test_calls_of_an_account_are_bounded() -> None:
    scene = Scene(CORE, 0)
    for number in range(3000):
        scene.account.keep(b"spec %d" % number, scene.scheduler.call("m", number, 1, True))
    assert len(scene.account.calls) <= 1024
    assert b"spec 2999" in scene.account.calls


def test_a_job_of_high_priority_does_not_put_others_behind_the_flood_of_its_client() -> None:
    scene = Scene(CORE)
    scene.submit(50)
    scene.scheduler.submit(Job(scene.account, b"", 99, scene.call, b"body", 4, 0.0, 50.0, priority=9))
    (urgent,) = scene.batches()
    assert [job.number for job in urgent.jobs] == [99]
    late = Job(Account(), b"", 1, scene.call, b"body", 4, 0.0, 50.0)
    scene.scheduler.submit(late)
    scene.done(urgent, None, joined=False)
    scene.done(scene.batches()[0], None, joined=False)
    assert scene.batches()[0].jobs == [late]


def test_a_model_pays_for_a_batch_that_hung_and_was_lost() -> None:
    scene = Scene(CORE, 0, Policy(hung_after_s=400.0))
    scheduler = scene.scheduler
    scheduler.add_model("good", ModelPolicy())
    scene.submit(10, timeout_s=500.0)
    scene.submit(10, timeout_s=500.0, call=scheduler.call("good", "key", 1, True))

    def next_batch(now: float) -> Batch:
        worker = scheduler.worker_comes(0, ["m", "good"])
        scheduler.lane_comes(worker, b"1")
        (batch,) = scene.batches(now)
        scheduler.worker_died(worker, "it hung", now + 400.0 if now == 0.0 else now)
        return batch

    assert next_batch(0.0).model.name == "m"
    assert {next_batch(400.0 + step).model.name for step in range(5)} == {"good"}, "it has its turns first"


def test_work_spreads_over_workers_before_it_fills_their_lanes() -> None:
    scene = Scene(CORE, workers=3)
    for worker in scene.workers:
        scene.scheduler.lane_comes(worker, b"second")
    scene.submit(3)
    assert len({id(batch.worker) for batch in scene.batches()}) == 3
