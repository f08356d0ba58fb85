"""What the scheduler promises, over real processes with the stub backend: batches, deadlines, priorities, pins."""

import re
import time
from collections.abc import Iterator

import numpy as np
import pytest

from pool import Client, errors
from support.pool_process import PoolProcess, pool_process, stub_config
from support.processes import eventually
from support.run_ledger import Ledger

ROWS = """
[[model]]
name = "rows"
path = "stub:rows"
batching = "always"
devices = "all"
max_batch = 8
[[model]]
name = "padded"
path = "stub:rows"
batching = "always"
devices = "all"
allowed_batch_sizes = [4, 16]
[[model]]
name = "patient"
path = "stub:rows"
batching = "always"
devices = "all"
max_batch = 4
batch_wait = "1h"
[[model]]
name = "brief"
path = "stub:rows"
batching = "always"
devices = "all"
max_batch = 4
batch_wait = "400ms"
[[model]]
name = "counter"
path = "stub:counter"
[[model]]
name = "faults"
path = "stub:faults"
devices = "all"
[[model]]
name = "even"
path = "stub:faults"
"""
TOLD = """
[[model]]
name = "told"
path = "stub:counter?{ledger}"
"""


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """What the model "told" has run, in order."""
    return Ledger(tmp_path_factory.mktemp("told"))


@pytest.fixture(scope="module")
def pool(ledger: Ledger) -> Iterator[PoolProcess]:
    """One worker with one lane: what runs meanwhile makes all else wait."""
    models = ROWS + TOLD.format(ledger=ledger.path)
    with pool_process(stub_config(extra_pool="lanes = 1", devices='["cpu"]', models=models)) as running:
        yield running


@pytest.fixture
def client(pool: PoolProcess) -> Iterator[Client]:
    with pool.client() as client:
        yield client


def waiting(client: Client, jobs: int) -> None:
    """Returns once so many jobs wait or run."""
    eventually(lambda: client.status().queue.jobs == jobs)


def floats(*values: float) -> "np.ndarray[tuple[int], np.dtype[np.float32]]":
    return np.array(values, np.float32)


def test_jobs_of_several_clients_run_together_and_each_gets_its_own(
    pool: PoolProcess, client: Client, ledger: Ledger
) -> None:
    with pool.client() as other:
        with ledger.occupied(client, "told"):
            mine = [client.submit("rows", floats(n), signature="double") for n in range(4)]
            others = [other.submit("rows", floats(10 + n), signature="double") for n in range(4)]
            waiting(client, 1 + 8)
        for n in range(4):
            assert mine[n].result()["y"].tolist() == [2 * n]
            assert others[n].result()["y"].tolist() == [20 + 2 * n]
            assert mine[n].result()["batch"].tolist() == [8]
        timeline = others[0].timeline
        assert timeline is not None
        assert timeline.batch_rows == 8
        assert timeline.rows == 1


def test_an_idle_lane_never_waits_for_company(client: Client) -> None:
    assert client.run("rows", floats(1.0), signature="double")["batch"].tolist() == [1]


def test_a_job_larger_than_a_batch_is_split_and_joined(client: Client) -> None:
    values = np.arange(100, dtype=np.float32)
    result = client.run("rows", values, signature="double")
    assert result["y"].tolist() == (2 * values).tolist()
    assert result["batch"].tolist() == [8] * 96 + [4] * 4


def test_strings_are_split_and_joined_too(client: Client) -> None:
    texts = [("é" * (n % 5) + str(n)).encode() + b"\0" * (n % 3) for n in range(37)]
    result = client.run("rows", texts, signature="text")
    assert result["upper"].tolist() == [text.upper() for text in texts]
    assert result["length"].tolist() == [len(text) for text in texts]


def test_large_strings_are_cut_too(client: Client) -> None:
    """Eight rows of 5 MB a batch: too many bytes for several at once, and more than the pool's loop copies."""
    texts = np.array([bytes([97 + number]) * 5_000_000 for number in range(10)], object)
    future = client.submit("rows", texts, signature="text")
    assert future.result()["upper"].tolist() == [text.upper() for text in texts]
    assert future.timeline is not None
    assert future.timeline.batch_rows in (2, 8)


def test_padding_is_stripped(client: Client) -> None:
    result = client.run("padded", floats(1, 2, 3, 4, 5), signature="double")
    assert result["y"].tolist() == [2, 4, 6, 8, 10]
    assert result["batch"].tolist() == [16] * 5


HELD = """
[[model]]
name = "rows"
path = "stub:rows"
batching = "always"
[[model]]
name = "hold"
path = "stub:counter?{ledger}"
[[model]]
name = "stateful"
path = "stub:counter"
batching = "always"
[[model]]
name = "stateless"
path = "stub:tally"
batching = "always"
"""


@pytest.fixture(scope="module")
def hold(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """Holds the lane of `held`."""
    return Ledger(tmp_path_factory.mktemp("hold"))


@pytest.fixture(scope="module")
def held(hold: Ledger) -> Iterator[PoolProcess]:
    with pool_process(stub_config("lanes = 1", '["cpu"]', HELD.format(ledger=hold.path))) as running:
        yield running


def test_views_of_a_shared_batch_are_each_client_s_own(held: PoolProcess, hold: Ledger) -> None:
    with held.client() as client, held.client() as other:
        with hold.occupied(client, "hold"):
            one = client.submit("rows", floats(1, 2), signature="view")
            two = other.submit("rows", floats(3), signature="view")
            eventually(lambda: client.status().queue.jobs == 3)
        assert one.result()["column"].tolist() == [[1], [2]]
        assert two.result()["column"].tolist() == [[3]]
        assert one.result()["same"].tolist() == [1, 2]
        assert [each.timeline.batch_rows for each in (one, two) if each.timeline is not None] == [3, 3]
        # As many rows again, where those of the shared batch were.
        assert client.run("rows", floats(9, 9, 9), signature="view")["same"].tolist() == [9, 9, 9]
        assert (one.result()["same"].tolist(), two.result()["same"].tolist()) == ([1, 2], [3])


@pytest.mark.parametrize(("model", "together"), [("stateful", 1), ("stateless", 5)])
def test_stateful_jobs_are_never_batched(held: PoolProcess, hold: Ledger, model: str, together: int) -> None:
    """Those of a model that is as it but for the state are."""
    with held.client() as client:
        with hold.occupied(client, "hold"):
            futures = [client.submit(model, {"n": [1]}, signature="gated") for _ in range(5)]
            eventually(lambda: client.status().queue.jobs == 6)
        assert [future.result()["total"].tolist() for future in futures] == [[1], [2], [3], [4], [5]]
        assert [future.timeline.batch_rows for future in futures if future.timeline is not None] == [together] * 5


def test_a_signature_that_does_not_keep_its_rows_runs_alone_from_then_on(
    pool: PoolProcess, client: Client, ledger: Ledger
) -> None:
    with ledger.occupied(client, "told"):
        futures = [client.submit("rows", floats(n, n), signature="shrink") for n in range(3)]
        waiting(client, 1 + 3)
    assert [future.result()["y"].tolist() for future in futures] == [[0], [1], [2]]
    pool.await_log("signature shrink: no longer batched")
    assert client.run("rows", np.arange(20, dtype=np.float32), signature="shrink")["y"].tolist() == [0]


# --- waiting for company ----------------------------------------------------------------------------------------------


def test_batch_wait_ends_when_the_batch_is_full(client: Client) -> None:
    """Its end by itself is an hour away, or half of what their timeouts leave."""
    futures = [client.submit("patient", floats(n), signature="double", timeout=100) for n in range(3)]
    waiting(client, 3)
    assert not any(future.done() for future in futures), "they wait for one more"
    futures.append(client.submit("patient", floats(3), signature="double", timeout=100))
    assert [future.result(20)["batch"].tolist() for future in futures] == [[4]] * 4


def test_batch_wait_is_told_apart_from_the_queue(client: Client) -> None:
    """The segments add up to the whole time, so a wait that counts twice leaves less than nothing for the rest."""
    client.run("rows", floats(1), signature="double")  # it is connected
    future = client.submit("brief", floats(1), signature="double")
    future.result()
    assert future.timeline is not None
    assert future.timeline.batch_wait_s >= 0.4
    assert future.timeline.queue_s < future.timeline.batch_wait_s
    assert future.timeline.reply_s >= 0


def test_batch_wait_never_costs_a_deadline(client: Client) -> None:
    """Half of what is left at most, as nobody knows yet how long these rows take."""
    future = client.submit("patient", floats(1), signature="view", timeout=3)
    assert future.result()["same"].tolist() == [1]
    assert future.timeline is not None
    assert 0 < future.timeline.batch_wait_s < 3


# --- time -------------------------------------------------------------------------------------------------------------


def test_a_deadline_behind_a_long_job_is_answered_at_the_deadline(
    client: Client, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Triton #7512: the answer came when the device was free again."""
    monkeypatch.setattr("pool.client.dispatch.LATE_S", 60.0)  # a pool that is held up is waited for
    with ledger.occupied(client, "told") as long:
        before = client.status().slots[0].jobs_done
        # The pool says so: the client gives up by itself some time later, and in other words.
        with pytest.raises(errors.DeadlineExceeded, match="the timeout ended in the queue"):
            client.run("rows", floats(1), signature="double", timeout=1.0)
        assert not long.done()
    assert long.result(20)
    assert long.timeline is not None
    expired = client.explain(long.timeline.job + 1)
    assert (expired.state, expired.runs) == ("EXPIRED", 0)
    assert float(expired.history[-1].partition(" s EXPIRED")[0]) >= round(expired.timeout_s or 0.0, 3), "not too early"
    # The expired job did not reach the device: nothing follows the long one.
    assert client.run("rows", floats(1), signature="double")["batch"].tolist() == [1]
    assert client.status().slots[0].jobs_done == before + 2


def test_a_job_that_cannot_make_it_is_refused_at_once_with_the_time(client: Client, ledger: Ledger) -> None:
    """At once: no lane comes to look at it, and its deadline has other words."""
    for _ in range(4):  # all runs of this model take as long
        client.run("even", 0.2, signature="sleep")
    with ledger.occupied(client, "told") as long:
        others = [client.submit("even", 0.2, signature="sleep") for _ in range(10)]
        with pytest.raises(errors.DeadlineExceeded, match="it would take at least") as caught:
            client.run("even", 0.2, signature="sleep", timeout=2.0)
        assert not long.done()
        found = re.search(r"take at least (\S+) s, but its timeout is (\S+) s", str(caught.value))
        assert found is not None, caught.value
        assert float(found[1]) >= 11 * 0.2 > 2.0 >= float(found[2])
        assert all(future.cancel() for future in others)


def test_a_cancelled_job_never_runs(client: Client, ledger: Ledger) -> None:
    with ledger.occupied(client, "told"):
        before = client.status().slots[0].jobs_done
        futures = [client.submit("rows", floats(n), signature="double") for n in range(20)]
        waiting(client, 1 + 20)
        assert all(future.cancel() for future in futures)
        last = client.submit("rows", floats(7), signature="double")
        waiting(client, 1 + 1)
    assert last.result()["batch"].tolist() == [1]
    assert client.status().slots[0].jobs_done == before + 2


# --- order ------------------------------------------------------------------------------------------------------------


def test_higher_priorities_go_first(ledger: Ledger) -> None:
    """In a pool of its own: of sixteen batches of a slot one is led by the job that came first."""
    models = TOLD.format(ledger=ledger.path)
    config = stub_config(extra_pool="lanes = 1", devices='["cpu"]', models=models)
    with pool_process(config) as pool, pool.client() as client:
        before = len(ledger.started()) + 1
        with ledger.occupied(client, "told"):
            for priority in (-5, 0, 5):
                client.submit("told", 10 + priority, signature="add", priority=priority)
            waiting(client, 1 + 3)
        waiting(client, 0)
    assert ledger.started()[before:] == [15, 10, 5]


def test_a_priority_that_is_none_is_refused(client: Client) -> None:
    with pytest.raises(errors.InvalidInput, match="priority"):
        client.run("rows", floats(1), signature="double", priority=1000)


def test_one_client_s_flood_does_not_hold_up_another(pool: PoolProcess, ledger: Ledger) -> None:
    """Its own wait is for the running batch alone: as soon as one job of the flood is done, it is the other's turn.

    For a turn is by time used: each job of the flood runs for longer than the other's last one took in all.
    """
    with pool.client() as flood, pool.client() as polite:
        before = len(ledger.started())
        took_s = 0.0
        # Each of the flood's runs until the gate is opened.
        flooding = [flood.submit("told", {"n": [-2]}, signature="gated", timeout=100) for _ in range(400)]
        waiting(polite, 400)
        for number in range(1, 11):
            eventually(lambda runs=number: ledger.started()[before:].count(-2) == runs)  # type: ignore[misc]
            runs_since = time.monotonic()
            mine = polite.submit("told", number, signature="add")
            waiting(polite, 400 - number + 2)
            eventually(lambda since=runs_since, most_s=2 * took_s: time.monotonic() - since > most_s)  # type: ignore[misc]
            opened = time.monotonic()
            ledger.open_gate()
            assert mine.result(20), "it waits for nobody to open the gate"
            took_s = time.monotonic() - opened
        assert ledger.started()[before:][:20] == [n for number in range(1, 11) for n in (-2, number)]
        assert not flooding[-1].done(), "the flood was over too soon to prove anything"
        for future in flooding:
            future.cancel()
        ledger.open_gate()
        waiting(polite, 0)


def test_a_pinned_job_runs_where_it_is_asked_to() -> None:
    with pool_process(stub_config(models=ROWS)) as pool, pool.client() as client:
        slots = {slot.slot: slot.pid for slot in client.status().slots}
        for number, pid in slots.items():
            for name in (f"slot:{number}", f"cpu:{number}"):
                futures = [client.submit("rows", np.array([0.01]), signature="sleep", device=name) for _ in range(5)]
                assert {int(future.result()["pid"][0]) for future in futures} == {pid}
        with pytest.raises(errors.InvalidInput, match=r"'gpu:7' is not a device of this pool.*cpu:0, cpu:1"):
            client.run("rows", floats(1), signature="double", device="gpu:7")

        # Scattered over both, joined in order; the same input on each.
        values = np.arange(12, dtype=np.float32)
        scattered = client.scatter("rows", values, signature="double", reduce="concat")
        assert scattered["y"].tolist() == (2 * values).tolist()
        everywhere = client.broadcast("rows", np.array([0.01]), signature="sleep")
        assert {number: int(result["pid"][0]) for number, result in everywhere.items()} == slots
