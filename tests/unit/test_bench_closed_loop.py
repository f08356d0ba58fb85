"""What `pool bench` measures, and with what."""

import itertools
import math
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import msgpack
import numpy as np
import pytest

from pool.bench.inputs import made_jobs
from pool.bench.load import BenchJob, Load
from pool.bench.loop import Loop
from pool.bench.meter import Meter, Show
from pool.bench.point import Point, percentiles
from pool.client.futures import JobFuture
from pool.errors import ModelFailed, PoolError, PoolUnreachable
from pool.wire.signatures import TensorSpec
from pool.wire.tensors import DTYPES, dtype_name
from unit.results import result_of

# --- percentiles


@pytest.mark.parametrize(
    ("count", "percent", "value"),
    [(1, 50, 1), (1, 99.9, 1), (2, 50, 1), (100, 50, 50), (100, 99, 99), (1000, 99.9, 999), (10, 99.9, 10), (10, 0, 1)],
)
def test_percentile_is_the_nearest_rank(count: int, percent: float, value: float) -> None:
    assert percentiles([float(number) for number in range(1, count + 1)], percent) == [value]


def test_percentile_of_nothing() -> None:
    assert all(map(math.isnan, percentiles([], 50, 99)))


def test_percentile_is_a_value_that_enough_do_not_exceed() -> None:
    seed = random.randrange(1 << 30)
    rng = random.Random(seed)
    values = [rng.random() for _ in range(rng.randint(1, 500))]
    for percent in (1, 50, 90, 99, 99.9):
        (found,) = percentiles(values, percent)
        at_most = sum(value <= found for value in values)
        below = sum(value < found for value in values)
        assert at_most / len(values) >= percent / 100 - 1e-9 > below / len(values) - 1e-9, f"seed {seed}"


# --- the loop


class Pool:
    """Answers each job from another thread, `delay_s` after it came, one after another."""

    def __init__(self, answer: Callable[[int], PoolError | None], delay_s: float = 0.001) -> None:
        self._answer = answer
        self._delay_s = delay_s
        self.submitted = 0
        self.outstanding: list[JobFuture] = []
        self.most = 0

    def submit(self) -> "Future[Any]":
        number = self.submitted
        self.submitted += 1
        future = JobFuture()
        self.outstanding.append(future)
        self.most = max(self.most, sum(not each.done() for each in self.outstanding))
        timer = threading.Timer(self._delay_s, lambda: future.finish(self._answer(number) or result_of({})))
        timer.daemon = True
        timer.start()
        return future


class Ticks:
    """A clock that goes on with each look at it, and at no other time: however long the machine takes."""

    def __init__(self) -> None:
        self._looks = itertools.count()

    def perf_counter(self) -> float:
        return 1000.0 + next(self._looks) * 0.001

    def process_time(self) -> float:
        return time.process_time()


def closed(
    pool: Pool,
    in_flight: int,
    duration_s: float,
    *,
    warmup_s: float = 0.0,
    jobs: int | None = None,
    show: Show = lambda *_: None,
    clock: Any = time,
) -> Point:
    load = Load(in_flight=in_flight, duration_s=duration_s, warmup_s=warmup_s, jobs=jobs)
    meter = Meter(load, show)
    meter.end(*Loop(pool.submit, meter.look, clock=clock).run(in_flight, (), None))
    return meter.point


def test_so_many_jobs() -> None:
    pool = Pool(lambda _: None)
    measured = closed(pool, 4, 60.0, jobs=50)
    assert measured.jobs == len(measured.latencies_s) == pool.submitted == 50
    assert pool.most <= 4
    assert min(measured.latencies_s) >= 0.001
    assert not measured.early


def test_fewer_jobs_than_in_flight() -> None:
    pool = Pool(lambda _: None)
    assert closed(pool, 16, 60.0, jobs=3).jobs == pool.submitted == 3


def test_so_long_and_the_rest_is_cancelled() -> None:
    pool, clock = Pool(lambda _: None, delay_s=0.02), Ticks()
    measured = closed(pool, 3, 0.3, clock=clock)
    assert clock.perf_counter() - 1000.0 >= 0.3
    assert measured.elapsed_s == pytest.approx(0.3)
    assert 3 <= measured.jobs <= pool.submitted
    assert all(future.done() for future in pool.outstanding)


def test_nothing_is_answered_in_time() -> None:
    pool = Pool(lambda _: None, delay_s=30.0)
    measured = closed(pool, 2, 0.2)
    assert measured.jobs == 0
    assert all(future.cancelled() for future in pool.outstanding)


def test_errors_are_counted_by_class() -> None:
    pool = Pool(lambda number: ModelFailed(f"boom {number}") if number % 2 else None)
    measured = closed(pool, 4, 60.0, jobs=20)
    assert len(measured.latencies_s) == 10
    assert measured.errors == {"ModelFailed": 10}
    assert measured.last_error["ModelFailed"].startswith("boom")


def test_it_ends_when_the_pool_goes_away() -> None:
    pool = Pool(lambda number: PoolUnreachable("gone") if number == 10 else None)
    measured = closed(pool, 4, 60.0)
    assert measured.early == "the pool went away"
    assert measured.errors == {"PoolUnreachable": 1}


def test_ctrl_c_keeps_what_was_measured() -> None:
    pool = Pool(lambda _: None)

    def interrupt(_what: str, part: float, rate: float) -> None:
        if part > 0.15 / 60 and rate and not interrupted:
            interrupted.append(part)
            raise KeyboardInterrupt

    interrupted: list[float] = []
    measured = closed(pool, 4, 60.0, show=interrupt)
    assert measured.early == "interrupted"
    assert measured.jobs > 0


def test_the_warm_up_is_not_counted() -> None:
    pool = Pool(lambda number: ModelFailed("cold") if number < 10 else None)
    measured = closed(pool, 4, 60.0, warmup_s=0.3, jobs=40, clock=Ticks())
    assert measured.jobs == len(measured.latencies_s) == 40
    assert pool.submitted > 50


# --- inputs


@pytest.mark.parametrize("dtype", list(DTYPES))
def test_random_inputs_fit_every_dtype(dtype: str) -> None:
    (made,) = made_jobs({"x": TensorSpec(dtype, (-1, 3, -1))}, {}, rows=5)
    array = made["x"]
    assert array.shape == (5, 3, 1)
    assert dtype_name(array.dtype) == dtype
    if dtype == "string":
        assert all(isinstance(text, bytes) for text in array.reshape(-1))


@pytest.mark.parametrize("dtype", list(DTYPES))
def test_zeros_of_every_dtype(dtype: str) -> None:
    (made,) = made_jobs({"x": TensorSpec(dtype, (-1, 3))}, {}, rows=2, zero_data=True)
    assert dtype_name(made["x"].dtype) == dtype
    assert all(value == (b"" if dtype == "string" else 0) for value in made["x"].reshape(-1).tolist())


def test_random_inputs_of_every_rank() -> None:
    shapes = {"a": (), "b": None, "c": (-1,), "d": (2, -1), "e": (0,)}
    (made,) = made_jobs({name: TensorSpec("float32", shape) for name, shape in shapes.items()}, {}, rows=4)
    assert {name: array.shape for name, array in made.items()} == {
        "a": (),
        "b": (4,),
        "c": (4,),
        "d": (2, 1),
        "e": (0,),
    }


def test_random_inputs_are_the_same_again() -> None:
    specs = {"x": TensorSpec("float32", (-1, 3)), "s": TensorSpec("string", (-1,))}
    first, second, other = (made_jobs(specs, {}, rows=5, seed=seed)[0] for seed in (1, 1, 2))
    assert all(np.array_equal(first[name], second[name]) for name in specs)
    assert not any(np.array_equal(first[name], other[name]) for name in specs)


def test_inputs_of_nothing_and_of_long_strings() -> None:
    specs = {"x": TensorSpec("float32", (-1, 3)), "s": TensorSpec("string", (-1,))}
    (zeros,) = made_jobs(specs, {}, rows=2, zero_data=True)
    assert not zeros["x"].any()
    assert zeros["s"].tolist() == [b"", b""]
    (long,) = made_jobs(specs, {}, rows=2, string_length=300)
    assert [len(text) for text in long["s"]] == [300, 300]


def test_inputs_have_the_shape_that_is_asked_for() -> None:
    spec = TensorSpec("float32", (-1, -1, -1, 3))

    def shape(text: str, rows: int = 1, spec: TensorSpec = spec) -> tuple[int, ...]:
        return made_jobs({"image": spec}, {}, rows=rows, shapes=[text])[0]["image"].shape

    assert shape("image:1,224,112,3") == (1, 224, 112, 3)
    assert shape("image:1,224,112,3", rows=4) == (4, 224, 112, 3)
    assert shape("image:224,112,3", rows=4) == (4, 224, 112, 3)
    assert shape("image:7,2,2,3", rows=4) == (7, 2, 2, 3)
    assert shape("image:5,6", spec=TensorSpec("float32", None)) == (5, 6)
    assert shape("image:", spec=TensorSpec("float32", None)) == ()
    for text in ("image:1,224,224,4", "image:224,3", "pixels:1", "image", "image:1,x", "image:-1,2,2,3"):
        with pytest.raises(ValueError, match="--shape"):
            shape(text)
    with pytest.raises(ValueError, match="twice"):
        made_jobs({"x": spec}, {}, shapes=["x:1", "x:2"])


def test_one_row_is_repeated() -> None:
    def sent(value: object, shape: tuple[int, ...]) -> object:
        return made_jobs({"x": TensorSpec("int64", shape)}, {"x": value}, rows=3)[0]["x"].tolist()

    assert sent([[1, 2]], (-1, 2)) == [[1, 2]] * 3
    assert sent([[1, 2], [3, 4]], (-1, 2)) == [[1, 2], [3, 4]]
    assert sent(np.ones((1, 2)), (-1, 2)) == [[1, 1]] * 3
    assert sent([[1, 2]], (1, 2)) == [[1, 2]]
    assert sent(5, ()) == 5


def test_rows_of_a_job() -> None:
    assert BenchJob("m", "s", [{"a": np.asarray(1)}]).rows == 1
    assert BenchJob("m", "s", [{"a": np.asarray(1), "b": np.ones(7)}]).rows == 7


def test_a_job_travels() -> None:
    job = BenchJob("m", "s", [{"a": np.asarray([b"x", b""], object), "b": np.ones((2, 3))}, {"a": np.asarray(5)}])
    packed = BenchJob.unpacked(msgpack.unpackb(msgpack.packb(job.packed())))
    assert (packed.named(), len(packed.inputs)) == (job.named(), 2)
    for own, other in zip(job.inputs, packed.inputs, strict=True):
        assert own.keys() == other.keys()
        assert all(np.array_equal(own[name], other[name]) for name in own)
