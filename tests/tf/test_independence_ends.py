"""When jobs are not joined any more: at the first sample that differs, and where other files are served.

Once a signature is proven, `SAMPLE_SHARE` of the time of joined runs goes into comparing them. So a gate that opens
late stays unseen for the time that a comparison took divided by that share. What the machine takes is not for a test
to say: the hook has the workers count each run as long as they are told.
"""

import os
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pool import Client
from pool.wire.records import SignatureInfo
from support.pool_process import PoolProcess, pool_process, stub_config
from support.processes import alive, eventually
from tf import row_models
from tf.held_lanes import HeldLanes
from workers.independence.samples import SAMPLE_SHARE

pytestmark = [pytest.mark.tensorflow, pytest.mark.models]

QUICK_SHARE = 0.02  # in place of a thousandth
COMPARED = 3  # runs of a comparison at most: two halves, and one row
UNSEEN = 10  # comparisons in a row that may miss an open gate, which one of seven does
BURST = 24
HOOK = """
import sys
if "workers" in sys.orig_argv:
    from workers.independence import samples
    samples.SAMPLE_SHARE = {share}
    wanted, spent = samples.Watch.wanted, samples.Watch.spent
    samples.Watch.wanted = lambda watch, _: wanted(watch, {run_s})
    samples.Watch.spent = lambda watch, _: spent(watch, 1.0)
"""


def rows(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, 4)).astype(np.float32)


def told(client: Client, model: str) -> SignatureInfo:
    (found,) = [each for each in client.models() if each.name == model]
    return found.signatures["serving_default"]


def prove(client: Client, model: str) -> None:
    """Sends jobs until they are joined."""

    def is_proven() -> bool:
        for seed in range(8):
            client.run(model, rows(3, seed))
        return bool(told(client, model).batchable)

    eventually(is_proven, 60)


def burst(client: Client, model: str, fed: list[np.ndarray]) -> list[Any]:
    """Jobs that are sent one right after the other; gives their futures, once all are done."""
    futures = [client.submit(model, x, timeout=60) for x in fed]
    for future in futures:
        future.result(60)
    return futures


def held(client: Client, lanes: HeldLanes, model: str, fed: list[np.ndarray]) -> list[Any]:
    """The same, but that all wait for the only lane before the first runs."""
    with lanes.held(client, jobs=len(fed)):
        futures = [client.submit(model, x, timeout=60) for x in fed]
    for future in futures:
        future.result(60)
    return futures


def which_are_joined(futures: list[Any]) -> list[bool]:
    """Those that came in one message and ran as one have one timeline, of its last batch."""
    jobs = Counter(future.timeline.job for future in futures)
    return [each.timeline.batch_rows > each.timeline.rows or jobs[each.timeline.job] > 1 for each in futures]


def are_joined(futures: list[Any]) -> int:
    """How many of these were."""
    return sum(which_are_joined(futures))


def is_joined(client: Client, lanes: HeldLanes, model: str) -> bool:
    return are_joined(held(client, lanes, model, [rows(1, seed) for seed in range(BURST)])) > 0


@pytest.fixture(scope="module")
def gate(models: Path) -> Path:
    return row_models.save_gate(models / "gate")


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("share", "run_s"), [(QUICK_SHARE, 2.0), (SAMPLE_SHARE, 40.0)], ids=["often", "every day"])
def test_a_gate_that_opens_late_ends_joining_at_the_first_sample_that_differs(
    gate: Path, tmp_path: Path, share: float, run_s: float
) -> None:
    """`share` of the time of joined runs goes into comparing them; one counts as `run_s`, one of a comparison as 1 s.

    So each run of a comparison keeps the next comparison back for 25 joined runs.
    """
    (tmp_path / "sitecustomize.py").write_text(HOOK.format(share=share, run_s=run_s))
    lanes = HeldLanes(tmp_path)
    entry = f'[[model]]\nname = "gate"\npath = "{gate}"\nmax_batch = 8\n{lanes.config}'
    config = stub_config(devices='["cpu"]', models=entry, extra_pool="lanes = 1")
    with pool_process(config, {"PYTHONPATH": str(tmp_path)}) as pool, pool.client() as client:
        open_late(pool, client, lanes, int(UNSEEN * COMPARED / share / run_s))


def open_late(pool: PoolProcess, client: Client, lanes: HeldLanes, most_runs: int) -> None:
    """`most_runs`: joined ones until a sample differs."""
    prove(client, "gate")
    rare = rows(1)
    rare[0, 0] = row_models.RARE
    joined, wrong = are_joined(held(client, lanes, "gate", [rows(1, seed) for seed in range(BURST)])), 0
    assert joined
    runs: set[float] = set()  # how long each took: of one batch all answers have the same
    ended = False
    while not ended:
        fed = [rows(1, seed) if seed % 4 else rare for seed in range(BURST)]
        futures = held(client, lanes, "gate", fed)
        ended = not are_joined(futures)
        joined += are_joined(futures)
        for x, future, shared in zip(fed, futures, which_are_joined(futures), strict=True):
            right = np.allclose(future.result()["y"], alone(x), rtol=1e-4)
            assert right or shared
            wrong += not right
            if shared:
                runs.add(future.timeline.run_s)
        assert len(runs) < most_runs, f"{len(runs)} joined runs without a sample that differs"
    assert wrong, "the gate did not open"
    seen = told(client, "gate")
    assert not seen.batchable
    pool.await_log("depend on each other")
    for text in (seen.rows, pool.text()):
        assert "depend on each other: output 'y' gave [" in text
        assert f"among other rows; {joined} answers of joined rows were already sent" in text
    for seed in range(3):
        fed = [rows(seed + 1, seed), rare] * 8
        for x, future in zip(fed, held(client, lanes, "gate", fed), strict=True):
            np.testing.assert_allclose(future.result()["y"], alone(x), rtol=1e-4)
            assert future.timeline.batch_rows == len(x)


def alone(x: np.ndarray) -> np.ndarray:
    """What the gate gives."""
    return -(x + 50) if (x == row_models.RARE).any() else x + 50


@pytest.fixture(scope="module")
def lanes(tmp_path_factory: pytest.TempPathFactory) -> HeldLanes:
    return HeldLanes(tmp_path_factory.mktemp("lanes"))


@pytest.fixture(scope="module")
def pool(models: Path, lanes: HeldLanes) -> Iterator[PoolProcess]:
    plain = row_models.save_swapped(models / "plain", depends=False)
    depends = row_models.save_swapped(models / "depends", depends=True)
    entries = "".join(
        f'[[model]]\nname = "{name}"\npath = "{path}"\nmax_batch = {most}\n{rest}\n'
        for name, path, most, rest in (
            ("restarted", shutil.copytree(plain, models / "restarted"), 8, ""),
            ("reloaded", shutil.copytree(plain, models / "reloaded"), 8, ""),
            ("vouched", plain, 8, 'batching = "always"'),
            ("never", depends, 8, 'batching = "off"'),
            ("one", depends, 1, ""),
        )
    )
    with pool_process(stub_config(devices='["cpu"]', models=entries + lanes.config, extra_pool="lanes = 1")) as running:
        yield running


@pytest.fixture
def client(pool: PoolProcess) -> Iterator[Client]:
    with pool.client() as client:
        yield client


def test_what_the_user_decides_is_done_at_once(client: Client, lanes: HeldLanes) -> None:
    assert is_joined(client, lanes, "vouched")
    assert told(client, "vouched").rows == 'in batches: batching = "always"'
    fed = [rows(100, 1), *(rows(1 + seed % 5, seed) for seed in range(BURST)), rows(100, 2)]
    for model in ("never", "one"):  # one: `max_batch = 1` cuts nothing whose rows depend on each other
        for x, future in zip(fed, held(client, lanes, model, fed), strict=True):
            assert future.timeline.batch_rows == len(x)
            np.testing.assert_allclose(future.result()["y"], less_its_mean(x), rtol=1e-4, atol=1e-5)
    assert told(client, "never").rows == 'job by job: batching = "off"'


def less_its_mean(x: np.ndarray) -> np.ndarray:
    return 2 * x - x.mean(0)


def trials(pool: PoolProcess) -> dict[str, int]:
    """When each trial of rows was, by its mark."""
    return {path.name: path.stat().st_mtime_ns for path in (pool.state / "pool" / "trials").iterdir()}


def kill_worker(client: Client) -> int:
    """When it was gone, in nanoseconds since the epoch. The next one is READY when this ends."""
    (slot,) = client.status().slots
    os.kill(slot.pid, signal.SIGKILL)
    eventually(lambda: not alive(slot.pid))
    gone_ns = time.time_ns()

    def is_back() -> bool:
        (now,) = client.status().slots
        return bool(now.state == "READY" and now.pid != slot.pid)

    eventually(is_back, 60)
    return gone_ns


@pytest.mark.replacement
def test_what_is_known_outlives_the_worker_and_not_the_files(
    pool: PoolProcess, client: Client, lanes: HeldLanes, models: Path
) -> None:
    prove(client, "restarted")
    assert trials(pool)
    gone_ns = kill_worker(client)  # which may have compared rows of a last job until then
    assert max(trials(pool).values()) < gone_ns
    assert told(client, "restarted").rows.startswith("in batches: its rows were independent in ")
    assert is_joined(client, lanes, "restarted")

    put_in_place(models / "depends", models / "restarted")
    assert is_joined(client, lanes, "restarted"), "what is loaded is what it was"
    kill_worker(client)
    fed = [rows(1 + seed % 5, seed) for seed in range(BURST)]
    for x, future in zip(fed, held(client, lanes, "restarted", fed), strict=True):
        assert future.timeline.batch_rows == len(x)
        np.testing.assert_allclose(future.result()["y"], less_its_mean(x), rtol=1e-4, atol=1e-5)
    assert "depend on each other: when it warmed up" in told(client, "restarted").rows


def put_in_place(folder: Path, of: Path) -> None:
    """Other files come in the place of these, at once."""
    new, old = of.with_suffix(".new"), of.with_suffix(".old")
    shutil.copytree(folder, new)
    of.rename(old)
    new.rename(of)


@pytest.mark.replacement
def test_a_reload_to_other_files_never_gives_a_wrong_answer(pool: PoolProcess, client: Client, models: Path) -> None:
    """Under traffic: what was proven of the former files says nothing about the next ones."""
    prove(client, "reloaded")
    ended = threading.Event()
    answers: list[tuple[np.ndarray, Any]] = []

    def send() -> None:
        with pool.client() as own:
            while not ended.is_set():
                fed = [rows(1 + seed % 5, seed) for seed in range(BURST)]
                answers.extend(zip(fed, burst(own, "reloaded", fed), strict=True))

    with ThreadPoolExecutor() as threads:
        sending = [threads.submit(send) for _ in range(2)]
        try:
            eventually(lambda: are_joined([future for _, future in answers]) > 0)
            text = pool.config.read_text()
            pool.config.write_text(text.replace(f'"{models / "reloaded"}"', f'"{models / "depends"}"'))
            client.reload()
            eventually(lambda: "depend on each other" in told(client, "reloaded").rows, 60)
            since = len(answers)
            eventually(lambda: len(answers) > since + 2 * BURST)
        finally:
            ended.set()
        for each in sending:
            each.result(60)
    former = [np.allclose(future.result()["y"], 2 * x, rtol=1e-4) for x, future in answers]
    for was, (x, future) in zip(former, answers, strict=True):
        if not was:
            assert future.timeline.batch_rows == len(x)
            np.testing.assert_allclose(future.result()["y"], less_its_mean(x), rtol=1e-4, atol=1e-5)
    assert 0 < sum(former) < len(answers)
