"""How a worker finds out whether rows depend on each other: trials, samples, comparisons."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from pool.wire.faults import Fault
from pool.wire.independence import Batching, Judgement, RowsCompared, RowsJudged
from pool.wire.signatures import ModelInfo, Refused, Signature, TensorSpec
from pool.wire.tensors import DTYPES, Array
from pool.wire.worker_messages import ModelSettings
from unit.caches import new_cache
from workers.backend import ProcessUnusable
from workers.independence.checks import PATIENCE, Checks
from workers.independence.comparison import difference as difference_among
from workers.independence.known import Known
from workers.independence.samples import MOST_BYTES, SAMPLE_SHARE, Sample, Sampler
from workers.independence.trial import try_rows
from workers.made_up import made_up_rows

Function = Callable[[Array], Array]


def difference(found: Mapping[str, Array], right: Mapping[str, Array]) -> str:
    return difference_among(found, right, right)


# --- comparison -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64", "float8_e4m3fn"])
def test_floats_agree_within_what_their_dtype_can_hold(dtype: str) -> None:
    right = np.arange(1, 9).reshape(2, 4).astype(DTYPES[dtype])
    assert difference({"y": right.copy()}, {"y": right}) == ""
    other = right.copy()
    other[1, 2] = other[1, 2] * DTYPES[dtype].type(2)
    assert "output 'y'" in difference({"y": other}, {"y": right})


def test_the_last_bits_of_a_float_may_differ_and_no_more() -> None:
    right = np.full((1, 3), 100.0, np.float32)
    assert difference({"y": right + np.float32(0.01)}, {"y": right}) == ""
    assert difference({"y": right + np.float32(1.0)}, {"y": right}) != ""


def test_a_small_row_beside_a_large_one_is_compared_by_its_own_size() -> None:
    right = np.array([[1000.0], [10.0]], np.float32)
    assert difference({"y": right + np.array([[0.0], [0.5]], np.float32)}, {"y": right}) != ""


def test_a_large_number_hides_no_score_beside_it() -> None:
    right = np.array([[1.6e9 + row, 3.0 + row] for row in range(4)], np.float32)
    assert difference({"y": right + np.array([100.0, 0.01], np.float32)}, {"y": right}) == ""
    assert difference({"y": right + np.array([0.0, 2.0], np.float32)}, {"y": right}) != ""
    one = right[:1] + np.array([0.0, 2.0], np.float32)
    assert difference_among({"y": one}, {"y": right[:1]}, {"y": right}) != "", "of one row the others show its size"


def test_a_value_near_zero_is_noise_where_others_of_its_column_are_large() -> None:
    right = np.array([[3.0, 2.0], [4.0, 0.0], [5.0, -2.0], [6.0, 1.0]], np.float32)
    assert difference({"y": right + np.float32(1e-3)}, {"y": right}) == ""


def test_what_is_left_of_numbers_that_cancelled_is_noise() -> None:
    right = np.array([[1000.0], [0.0]], np.float32)
    assert difference({"y": right + np.array([[0.0], [1e-4]], np.float32)}, {"y": right}) == ""


@pytest.mark.parametrize("values", [[1, 2], [True, False], [b"a", b"b"]])
def test_all_else_must_be_equal(values: list[Any]) -> None:
    right = np.array(values, object if isinstance(values[0], bytes) else None)
    assert difference({"y": right.copy()}, {"y": right}) == ""
    assert difference({"y": right[::-1]}, {"y": right}) != ""


def test_nan_and_infinity_agree_with_themselves_alone() -> None:
    right = np.array([np.nan, np.inf, -np.inf, 1.0], np.float32)
    assert difference({"y": right.copy()}, {"y": right}) == ""
    for number in range(4):
        other = right.copy()
        other[number] = 7.0
        assert difference({"y": other}, {"y": right}) != ""
    assert difference({"y": np.array([np.inf], np.float32)}, {"y": np.array([-np.inf], np.float32)}) != ""


def test_axes_past_the_first_and_dtypes_are_compared_too() -> None:
    assert "rows of shape [3]" in difference({"y": np.zeros((2, 3))}, {"y": np.zeros((2, 2))})
    assert "dtype" in difference({"y": np.zeros(2, np.int32)}, {"y": np.zeros(2, np.int64)})
    assert difference({"y": np.zeros((0, 3))}, {"y": np.zeros((0, 3))}) == ""


# --- trial ------------------------------------------------------------------------------------------------------------


def given(rows: int = 8) -> Iterator[dict[str, Array]]:
    return made_up_rows(Signature({"x": TensorSpec("float32", (-1, 3))}, {}), rows)


def tried(function: Function, rows: int = 8) -> Any:
    return try_rows(lambda feeds: {"y": function(feeds["x"])}, ["y"], given(rows), math.inf)


NOISE = np.random.default_rng(3)
DEPENDENT: Mapping[str, Function] = {
    "mean": lambda x: x - x.mean(0),
    "softmax": lambda x: np.exp(x) / np.exp(x).sum(0),
    "cumsum": lambda x: x.cumsum(0),
    "sorted": lambda x: x[np.argsort(x[:, 0])],
    "reversed": lambda x: x[::-1].copy(),
    "rank": lambda x: np.argsort(np.argsort(x[:, 0])),
    "pairs": lambda x: x @ x.T,
    "gate": lambda x: x * (2 if x.sum() > 1 else 1),
    "maximum": lambda x: x / np.abs(x).max(),
    "count": lambda x: np.full(len(x), len(x)),
    "first": lambda x: x - x[0],
    "duplicates": lambda x: np.array([int((x == row).all(1).sum()) for row in x]),
    "noise": lambda x: x + NOISE.standard_normal(x.shape).astype(x.dtype),
    "position": lambda x: x + np.arange(len(x), dtype=x.dtype)[:, None],
    "width": lambda x: np.zeros((len(x), len(x))),
    "fewer": lambda x: x[:1],
    "one": lambda x: x.sum(),
    "late": lambda x: x[np.r_[0, np.arange(len(x) - 1)]],
}


@pytest.mark.parametrize("name", DEPENDENT)
def test_rows_that_depend_on_each_other_are_found_out(name: str) -> None:
    found = tried(DEPENDENT[name])
    assert found.differs
    assert not found.outputs


@pytest.mark.parametrize(
    "function",
    [lambda x: x * 2, lambda x: x - x.mean(1, keepdims=True), lambda x: np.argmax(x, 1), lambda x: (x > 0).all(1)],
)
def test_rows_that_are_computed_by_themselves_agree(function: Function) -> None:
    assert tried(function).outputs == ("y",)


def test_what_no_value_fits_is_untried_and_says_why() -> None:
    def refuse(_: Array) -> Array:
        raise Refused("no\nJPEG", Fault.MODEL_FAILED)

    found = tried(refuse)
    assert (found.outputs, found.differs, found.untried) == ((), "", "no JPEG")


def test_a_row_that_fails_by_itself_depends_on_its_company() -> None:
    def three(x: Array) -> Array:
        if len(x) < 3:
            raise Refused("too few", Fault.MODEL_FAILED)
        return x

    assert "too few" in tried(three).differs


def test_want_of_memory_is_no_sign_of_a_neighbour() -> None:
    calls = []

    def scarce(x: Array) -> Array:
        calls.append(len(x))
        if 1 < len(x) < 8:
            raise Refused("no memory", Fault.OUT_OF_MEMORY)
        return x

    assert tried(scarce).outputs == ("y",)
    assert set(calls) > {1, 8}, "it was met"


def test_the_trial_ends_in_time_but_not_before_it_has_seen_a_row_alone() -> None:
    calls = []

    def slow(x: Array) -> Array:
        calls.append(len(x))
        return x

    found = try_rows(lambda feeds: {"y": slow(feeds["x"])}, ["y"], given(32), time.monotonic())
    assert found.outputs == ("y",)
    assert calls == [32, 32, 32, 1]


def test_a_process_that_is_of_no_more_use_ends() -> None:
    def broken(_: Array) -> Array:
        raise ProcessUnusable("the device is gone")

    with pytest.raises(ProcessUnusable):
        tried(broken)


# --- samples and checks -----------------------------------------------------------------------------------------------

SPEC = TensorSpec("float32", (-1, -1))
INFO = ModelInfo("m", "stub:m", {"s": Signature({"x": SPEC}, {"y": SPEC})}, False, identity="files")
PROVEN = RowsJudged("m", "files", "s", ("y",), Judgement.PROVEN)


class Worker:
    """A lane's half of it, around a function of rows."""

    def __init__(self, function: Function, *judged: RowsJudged, max_batch: int = 32) -> None:
        self.function = function
        self.ran: list[Array] = []
        self.told: list[RowsCompared] = []
        self.known = Known([ModelSettings("m", "stub:m", True, batch_sizes=(1, max_batch), cache=new_cache())], judged)
        self.known.load("m", "files")
        self.sampler = Sampler(self.known)
        self.checks = Checks(self.sampler, self.again, self.told.append, self.known.marks, 0)
        self.max_batch = max_batch

    def again(self, _: Sample, feeds: Mapping[str, Array]) -> dict[str, Array]:
        self.ran.append(feeds["x"])
        return {"y": self.function(feeds["x"])}

    def job(self, x: Any, *, joined: bool = False, run_s: float = 0.001, rows: int | None = None) -> bool:
        """Runs and answers it; whether it is kept."""
        x = np.asarray(x, np.float32)
        fetched = self.function(x)
        watch = self.sampler.watch(INFO, "s", ("y",))
        if not (watch.joined if joined else watch.alone) or not watch.wanted(run_s):
            self.checks.served(None, self.max_batch)
            return False
        rows = len(x) if joined and rows is None else rows
        kept = self.sampler.sample(INFO, "s", ("y",), {"x": x}, {"y": fetched}, rows)
        self.checks.served(kept, self.max_batch)
        return kept is not None

    def finish(self) -> list[RowsCompared]:
        while self.checks.waits:
            self.checks.step()
        return self.told


def rows_of(values: Sequence[float]) -> Array:
    return np.array([[value, value + 1] for value in values], np.float32)


def test_a_job_is_compared_in_company_and_a_row_of_it_alone() -> None:
    worker = Worker(lambda x: x * 2)
    assert worker.job(rows_of([1, 2, 3]))
    assert not worker.ran, "it was answered before anything ran again"
    (found,) = worker.finish()
    assert (found.differs, found.distinct) == ("", True)
    assert sorted(map(len, worker.ran)) == [1, 4]


def test_a_row_that_never_has_company_is_not_copied() -> None:
    worker = Worker(lambda x: x * 2, max_batch=1)
    assert not worker.job(rows_of([1]))
    assert worker.job(rows_of([1, 2])), "its rows may be run one by one, if they are independent"
    assert Worker(lambda x: x * 2, max_batch=2).job(rows_of([1])), "here the same row may have company"


def test_the_company_is_of_earlier_jobs() -> None:
    worker = Worker(lambda x: x * 2)
    worker.job(rows_of([1]))
    (first,) = worker.finish()
    assert not first.distinct, "nobody else has come yet"
    worker.ran.clear()
    worker.job(rows_of([5]))
    assert worker.finish()[-1].distinct
    assert sorted(map(tuple, worker.ran[0].tolist())) == [(1, 2), (5, 6)]


@pytest.mark.parametrize("name", sorted(DEPENDENT.keys() - {"gate"}))
def test_jobs_that_depend_on_their_company_differ_within_two(name: str) -> None:
    worker = Worker(DEPENDENT[name])
    for values in ([1, 7, 3], [2, 9]):
        worker.job(rows_of(values))
        worker.finish()
    assert any(each.differs for each in worker.told)


def test_jobs_that_fail_together_depend_on_each_other() -> None:
    def single(x: Array) -> Array:
        if len(x) > 1:
            raise Refused("one at a time", Fault.MODEL_FAILED)
        return x

    worker = Worker(single)
    worker.job(rows_of([1]))
    (found,) = worker.finish()
    assert "one at a time" in found.differs


def test_want_of_memory_shows_nothing() -> None:
    def scarce(x: Array) -> Array:
        if len(x) > 1:
            raise Refused("no memory", Fault.OUT_OF_MEMORY)
        return x

    worker = Worker(scarce)
    worker.job(rows_of([1]))
    assert worker.finish() == []
    assert worker.ran


def test_jobs_whose_answers_have_other_axes_cannot_be_joined() -> None:
    worker = Worker(lambda x: np.zeros((len(x), int(x.max()))))
    worker.job(rows_of([1]))
    worker.finish()
    worker.job(rows_of([5]))
    assert "rows of shape [6] in one job and [2] in another" in worker.finish()[-1].differs


def test_a_job_whose_inputs_have_other_sizes_shows_that_axis_0_is_none_of_rows() -> None:
    worker = Worker(lambda x: x)
    sample = worker.sampler.sample(INFO, "s", ("y",), {"x": np.zeros(3), "z": np.zeros(2)}, {"y": np.zeros(3)}, None)
    worker.checks.served(sample, 32)
    assert "'x' has 3, 'z' has 2" in worker.told[0].differs


def test_what_a_client_wrote_while_its_job_ran_is_no_fault_of_the_model() -> None:
    worker = Worker(lambda x: x * 2)
    sample = worker.sampler.sample(INFO, "s", ("y",), {"x": rows_of([1, 2])}, {"y": rows_of([70, 80])}, None)
    worker.checks.served(sample, 32)
    (found,) = worker.finish()
    assert found.differs == ""


def test_rows_that_fail_by_themselves_now_say_nothing_of_the_model() -> None:
    """Its client wrote there while the job ran: what is compared was never answered."""

    def checked(x: Array) -> Array:
        if np.isnan(x).any():
            raise Refused("not a number", Fault.MODEL_FAILED)
        return x * 2

    worker = Worker(checked)
    written = rows_of([1, math.nan])
    sample = worker.sampler.sample(INFO, "s", ("y",), {"x": written}, {"y": rows_of([2, 4])}, None)
    worker.checks.served(sample, 32)
    assert worker.finish() == []
    assert len(worker.ran) == 2, "with company, and as they are"


def test_a_row_is_never_joined_with_more_than_max_batch_allows() -> None:
    worker = Worker(lambda x: x, max_batch=4)
    for _ in range(3):
        worker.job(rows_of(range(50)))
        worker.finish()
    assert max(map(len, worker.ran)) == 4


def test_with_max_batch_1_rows_are_run_alone_as_a_cut_would_run_them() -> None:
    worker = Worker(lambda x: x - x.mean(0), max_batch=1)
    worker.job(rows_of([1, 2]))
    (found,) = worker.finish()
    assert found.differs
    assert set(map(len, worker.ran)) == {1, 2}  # and once more as it came, to be sure


def test_what_is_dependent_or_decided_by_the_user_is_not_compared() -> None:
    dependent = Worker(lambda x: x, RowsJudged("m", "files", "s", (), Judgement.DEPENDENT))
    assert not dependent.job(rows_of([1]))
    for batching in (Batching.ALWAYS, Batching.OFF):
        worker = Worker(lambda x: x)
        worker.known = Known([ModelSettings("m", "stub:m", True, batching=batching, cache=new_cache())])
        worker.sampler = Sampler(worker.known)
        assert not worker.job(rows_of([1]))


def test_what_is_known_of_other_files_counts_for_nothing() -> None:
    other = RowsJudged("m", "other files", "s", (), Judgement.DEPENDENT)
    assert Worker(lambda x: x, other).job(rows_of([1]))


def test_what_the_pool_tells_counts_from_then_on() -> None:
    worker = Worker(lambda x: x)
    assert worker.job(rows_of([1]))
    worker.known.judge(PROVEN)
    worker.finish()
    assert not worker.job(rows_of([1])), "it runs alone, as it did"
    assert worker.job(rows_of([1, 2]), joined=True)
    assert worker.known.joins("m", "s", ("y",))
    worker.known.judge(RowsJudged("m", "files", "s", (), Judgement.DEPENDENT))
    assert not worker.known.joins("m", "s", ("y",))


def test_of_proven_rows_no_more_than_a_thousandth_of_the_work_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker(lambda x: x, PROVEN)
    clock = [0.0]
    monkeypatch.setattr("workers.independence.checks.time.monotonic", lambda: clock[0])

    def again(_: Sample, feeds: Mapping[str, Array]) -> dict[str, Array]:
        clock[0] += 0.0005 * len(feeds["x"])
        return {"y": feeds["x"]}

    worker.checks = Checks(worker.sampler, again, worker.told.append, worker.known.marks, 0)
    kept = 0
    for _ in range(20_000):
        kept += worker.job(rows_of([1, 2]), joined=True, run_s=0.001)
        worker.finish()
    assert clock[0] <= SAMPLE_SHARE * 20_000 * 0.001 + 0.001 + 1e-9, "but for the one that is being compared"
    assert kept == 1 + 20_000 * SAMPLE_SHARE, "and no less"
    assert not worker.told, "that rows agree again is no news"


def test_a_gate_that_opens_late_is_found_by_the_first_sample_that_meets_it() -> None:
    worker = Worker(lambda x: x * (2 if (x == 7).any() else 1), PROVEN)
    for _ in range(2000):
        worker.job(rows_of([1, 2, 3, 4]), joined=True)
        worker.finish()
    assert not worker.told
    sampled = 0
    while not sampled:
        sampled += worker.job(rows_of([1, 2, 7, 4]), joined=True)
    (found,) = worker.finish()
    assert found.differs


def test_padding_is_not_compared() -> None:
    worker = Worker(lambda x: x, PROVEN)
    worker.job(rows_of([1, 2, 1, 1]), joined=True, rows=2)
    worker.finish()
    assert sorted(map(len, worker.ran)) == [1, 1]


def test_what_is_very_large_is_not_kept() -> None:
    worker = Worker(lambda x: x)
    large = np.zeros((1, MOST_BYTES // 4 + 1), np.float32)
    assert worker.sampler.sample(INFO, "s", ("y",), {"x": large}, {"y": large}, None) is None


def test_a_lane_that_is_never_idle_compares_all_the_same() -> None:
    worker = Worker(lambda x: x)
    worker.job(rows_of([1]))
    for _ in range(PATIENCE):
        assert not worker.checks.overdue
        worker.job(rows_of([1]))
    assert worker.checks.overdue
    worker.checks.step()
    assert not worker.checks.overdue


def test_a_fault_of_ours_ends_the_comparison_and_not_the_lane(caplog: pytest.LogCaptureFixture) -> None:
    worker = Worker(lambda x: x)

    def broken(*_: object) -> dict[str, Array]:
        raise KeyError("no such thing")

    worker.checks = Checks(worker.sampler, broken, worker.told.append, worker.known.marks, 0)
    worker.job(rows_of([1]))
    (found,) = worker.finish()
    assert "cannot be compared" in found.differs
    assert "cannot be compared" in caplog.text
