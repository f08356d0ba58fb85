"""One bad job harms no other: over real processes with the stub backend."""

import contextlib
import stat
from collections.abc import Iterator

import numpy as np
import pytest

from pool import Client, errors
from pool.client.futures import JobFuture
from pool.kept.quarantine import load
from pool.wire.records import Slot
from support.pool_process import PoolProcess, pool_process, stub_config
from support.processes import eventually
from support.run_ledger import Ledger

MODELS = """
[[model]]
name = "rows"
path = "stub:rows?fits=5"
batching = "always"
devices = "all"
max_batch = 16
[[model]]
name = "faults"
path = "stub:faults"
devices = "all"
"""
HOLDS = """
[[model]]
name = "hold{slot}"
path = "stub:counter?{ledger}"
stateful = false
devices = "all"
"""
COUNT = 16
GUILTY = 11


@pytest.fixture(scope="module")
def ledgers(tmp_path_factory: pytest.TempPathFactory) -> list[Ledger]:
    """What holds the lane of each slot."""
    return [Ledger(tmp_path_factory.mktemp("ledger")) for _ in range(2)]


@pytest.fixture(scope="module")
def pool(ledgers: list[Ledger]) -> Iterator[PoolProcess]:
    """Two workers with a lane each, so that a batch gathers behind what occupies them."""
    models = MODELS + "".join(HOLDS.format(slot=slot, ledger=ledger.path) for slot, ledger in enumerate(ledgers))
    with pool_process(stub_config(extra_pool="lanes = 1", models=models, rest="[restart]\nintensity = 20")) as running:
        yield running


@pytest.fixture
def client(pool: PoolProcess) -> Iterator[Client]:
    eventually(lambda: all(slot.state == "READY" for slot in _status(pool)))
    with pool.client() as client:
        yield client


def _status(pool: PoolProcess) -> tuple[Slot, ...]:
    with pool.client() as client:
        return client.status().slots


@contextlib.contextmanager
def occupied(client: Client, ledgers: list[Ledger]) -> Iterator[None]:
    """Both lanes run jobs that end when this does."""
    with contextlib.ExitStack() as gates:
        for slot, ledger in enumerate(ledgers):
            before = len(ledger.started())
            client.submit(f"hold{slot}", {"n": [-1]}, signature="gated", device=f"slot:{slot}", timeout=100)
            eventually(lambda ledger=ledger, before=before: len(ledger.started()) > before)  # type: ignore[misc]
            gates.callback(ledger.open_gate)
        yield


def one_batch(client: Client, ledgers: list[Ledger], values: list[float], signature: str) -> list[JobFuture]:
    """Jobs that wait until they are all there, as many as a batch has rows."""
    with occupied(client, ledgers):
        futures = [client.submit("rows", np.array([value], np.float32), signature=signature) for value in values]
        eventually(lambda: client.status().queue.jobs == len(ledgers) + COUNT)
    return futures


def batch_with_one_guilty(
    client: Client, ledgers: list[Ledger], signature: str, together: int = COUNT
) -> list[BaseException | None]:
    """What became of jobs of which one ran with neighbours first, so many rows in all; those have their results."""
    values = [float(-n if n == GUILTY else n) for n in range(1, COUNT + 1)]
    futures = one_batch(client, ledgers, values, signature)
    found = [future.exception(30) for future in futures]
    numbers = [future.timeline.job for future in futures if future.timeline is not None]
    assert len(numbers) == COUNT - 1
    (guilty,) = set(range(min(numbers), max(numbers))) - set(numbers)
    leases = [client.explain(number).history[0].partition(" s ")[2] for number in (guilty, *numbers)]
    assert leases[0] in leases[1:], "it ran alone"
    assert leases[0].endswith(f" of {together} rows")
    for value, future in zip(values, futures, strict=True):
        if value > 0:
            assert future.result()["y"].tolist() == [value]
    return found


@pytest.mark.promise(3)
def test_a_model_error_reaches_the_guilty_job_alone(client: Client, ledgers: list[Ledger]) -> None:
    error = batch_with_one_guilty(client, ledgers, "fail")[GUILTY - 1]
    assert isinstance(error, errors.ModelFailed)
    assert "a row is negative" in str(error)


def test_many_rows_of_one_job_fail_with_it_alone(client: Client) -> None:
    values = np.ones(40, np.float32)
    values[33] = -1
    with pytest.raises(errors.ModelFailed, match="a row is negative"):
        client.run("rows", values, signature="fail")
    assert client.run("rows", abs(values), signature="fail")["y"].tolist() == [1.0] * 40


def test_map_over_an_array_raises_the_error_of_a_row_in_its_turn(client: Client) -> None:
    values = np.ones((300, 1), np.float32)
    values[233] = -1
    results = client.map("rows", values, signature="fail", in_flight=64)
    found: list[float] = []
    with pytest.raises(errors.ModelFailed, match="a row is negative"):
        found.extend(float(result["y"][0]) for result in results)
    assert found == [1.0] * 233


def test_what_does_not_fit_together_is_run_in_pieces(pool: PoolProcess, client: Client, ledgers: list[Ledger]) -> None:
    futures = one_batch(client, ledgers, [float(n) for n in range(COUNT)], "oom")
    assert [future.result(20)["y"].tolist() for future in futures] == [[n] for n in range(COUNT)]
    pool.await_log("no memory for 16 rows; 8 are tried next")
    # One job, larger than what fits: cut by rows.
    values = np.arange(16, dtype=np.float32)
    assert client.run("rows", values, signature="oom")["y"].tolist() == values.tolist()


def test_a_row_that_does_not_fit_is_out_of_memory(pool: PoolProcess, client: Client, ledgers: list[Ledger]) -> None:
    with pool.client() as other:  # a client that has had an answer would send the jobs in one message
        other.run("rows", np.arange(COUNT, dtype=np.float32), signature="oom")
    # So many are not tried together any more, but four are.
    error = batch_with_one_guilty(client, ledgers, "oom", together=4)[GUILTY - 1]
    assert isinstance(error, errors.OutOfMemory)


@pytest.mark.promise(2)
@pytest.mark.parametrize(("signature", "death"), [("kill", "SIGKILL"), ("unusable", "PROCESS_UNUSABLE")])
def test_a_killer_is_quarantined_and_its_neighbours_get_their_results(
    pool: PoolProcess, client: Client, ledgers: list[Ledger], signature: str, death: str
) -> None:
    error = batch_with_one_guilty(client, ledgers, signature)[GUILTY - 1]
    assert isinstance(error, errors.Quarantined)
    assert not error.retryable
    assert str(error).count(death) == 2
    pool.await_log("pool submit --replay")


def test_the_inputs_of_a_quarantined_job_are_kept_and_can_be_sent_again(pool: PoolProcess, client: Client) -> None:
    folder = pool.state / "pool" / "quarantine"
    before = set(folder.glob("*.job"))
    with pytest.raises(errors.Quarantined):
        client.run("rows", np.array([3.0, -1.0], np.float32), signature="kill")
    eventually(lambda: bool(set(folder.glob("*.job")) - before))
    (path,) = set(folder.glob("*.job")) - before
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    kept = load(path)
    assert (kept.model, kept.signature, kept.rows) == ("rows", "kill", 2)
    assert "died: SIGKILL" in kept.history
    again = client.submit_payload(
        model=kept.model, signature=kept.signature, outputs=kept.outputs, rows=kept.rows, payload=kept.payload
    )
    assert isinstance(again.exception(30), errors.Quarantined)


def test_a_caller_that_sends_a_killer_again_and_again_kills_no_more_workers(client: Client) -> None:
    poison = np.array([5.0, -1.0], np.float32)
    with pytest.raises(errors.Quarantined, match="died: SIGKILL"):
        client.run("rows", poison, signature="kill")
    eventually(lambda: all(slot.state == "READY" for slot in client.status().slots))
    before = [slot.incarnation for slot in client.status().slots]
    for _ in range(20):
        with pytest.raises(errors.Quarantined, match="the same inputs were quarantined"):
            client.run("rows", poison, signature="kill")
    assert [slot.incarnation for slot in client.status().slots] == before
    assert client.run("rows", abs(poison), signature="kill")["y"].tolist() == [5.0, 1.0]


def test_further_jobs_are_not_held_up_by_a_killer(client: Client) -> None:
    killer = client.submit("rows", np.array([-1], np.float32), signature="kill")
    for n in range(50):
        assert client.run("rows", np.array([n], np.float32), signature="kill", timeout=5)["y"].tolist() == [n]
    assert isinstance(killer.exception(30), errors.Quarantined)
