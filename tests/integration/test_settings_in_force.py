"""What a configuration or an option asks for is what a running pool does; each test fails where it is ignored.

The stub backend takes TensorFlow's place; `tensorflow/test_settings_in_force.py` has the keys that TensorFlow sees.
"""

import contextlib
import json
import os
import re
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from pool import Client, errors
from pool.wire.records import Slot
from support.commands import in_process
from support.pool_process import PoolProcess, pool_process, stub_config
from support.processes import eventually, freeze, pid_of
from support.run_ledger import Ledger

CLIENT_MAX = 40
ECHO = '[[model]]\nname = "echo"\npath = "stub:echo"\n'


@contextlib.contextmanager
def started(config: str, *options: str) -> Iterator[PoolProcess]:
    pool = PoolProcess(config, options=options)
    try:
        yield pool.start().await_ready()
        assert pool.stop() == 0
    finally:
        pool.kill()


def events(pool: PoolProcess) -> list[dict[str, Any]]:
    """Of a pool with --log-format json."""
    return [json.loads(line) for line in pool.text().splitlines()]


def slot_of(client: Client, number: int = 0) -> Slot:
    return client.status().slots[number]


def await_ready(client: Client, incarnation: int, number: int = 0) -> Slot:
    def there() -> bool:
        slot = slot_of(client, number)
        return slot.state == "READY" and slot.incarnation >= incarnation

    eventually(there, 40, lambda: slot_of(client, number))
    return slot_of(client, number)


# --- [queue], [quarantine], [crash_reports], and the weight of a model: one worker with one lane


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    return Ledger(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def bounded(runs: Ledger) -> Iterator[PoolProcess]:
    """`heavy` and `light` write what they run into one ledger; `gate` keeps the lane for as long as a test wants."""
    models = f'[[model]]\nname = "gate"\npath = "stub:counter?{runs.path}"\n'
    for name, weight in (("heavy", 4.0), ("light", 1.0)):
        models += f'[[model]]\nname = "{name}"\npath = "stub:tally?{runs.path}&run_ms=10"\nweight = {weight}\n'
    models += '[[model]]\nname = "faults"\npath = "stub:faults"\n'
    rest = f'[queue]\nclient_max_jobs = {CLIENT_MAX}\ndefault_timeout = "400ms"\nmax_attempts = 1\n'
    rest += '[restart]\nintensity = 1000\nbackoff_max = "100ms"\n[quarantine]\nkeep = 1\n[crash_reports]\nkeep = 2\n'
    with pool_process(stub_config("lanes = 1", '["cpu"]', models, rest)) as running:
        yield running


def test_a_heavier_model_has_more_of_the_device(bounded: PoolProcess, runs: Ledger) -> None:
    heavy, light = [1] * CLIENT_MAX, [2] * CLIENT_MAX
    with bounded.client() as one, bounded.client() as other, bounded.client() as third:
        before = len(runs.started())
        with runs.occupied(third, "gate"):
            futures = [one.submit("light", n, signature="add", timeout=60.0) for n in light]
            futures += [other.submit("heavy", n, signature="add", timeout=60.0) for n in heavy]
            eventually(lambda: third.status().queue.jobs == 1 + 2 * CLIENT_MAX)
        for future in futures:
            future.result()
    ran = runs.started()[before + 1 :]
    assert sorted(ran) == heavy + light
    # By the time that each had used when a light one began: a run that is held up is time used, too.
    took = {2: futures[:CLIENT_MAX], 1: futures[CLIENT_MAX:]}
    used, begun, too_soon = {1: 0.0, 2: 0.0}, {1: 0, 2: 0}, 0
    last_heavy = len(ran) - ran[::-1].index(1)
    for place, which in enumerate(ran[:last_heavy]):
        # A quarter would be right, as much without weights. The first ones are charged what was guessed.
        too_soon += which == 2 and place > CLIENT_MAX // 4 and used[2] > used[1] / 2
        timeline = took[which][begun[which]].timeline
        assert timeline is not None
        used[which] += timeline.feed_s + timeline.run_s + timeline.fetch_s
        begun[which] += 1
    assert too_soon <= last_heavy // 16 + 1, f"of sixteen one is led by the job that came first: {ran}, {used}"


def test_a_client_has_no_more_jobs_than_its_bound(bounded: PoolProcess, runs: Ledger) -> None:
    with bounded.client() as third, bounded.client() as greedy, bounded.client() as modest:
        with runs.occupied(third, "gate"):
            futures = [greedy.submit("heavy", 1, signature="add", timeout=60.0) for _ in range(CLIENT_MAX + 1)]
            refused = futures[-1].exception(20)
            assert isinstance(refused, errors.Overloaded)
            assert f"[queue] client_max_jobs ({CLIENT_MAX})" in str(refused)
            assert not any(future.done() for future in futures[:-1])
            another = modest.submit("heavy", 1, signature="add", timeout=60.0)
        assert another.result()["total"] > 0
        assert [future.exception() for future in futures[:-1]] == [None] * CLIENT_MAX


def test_a_job_without_a_timeout_has_that_of_the_queue(bounded: PoolProcess, runs: Ledger) -> None:
    with bounded.client() as client:
        with runs.occupied(client, "gate"):
            late = client.submit("heavy", 1, signature="add").exception(20)
            assert isinstance(late, errors.DeadlineExceeded), late
            patient = client.submit("heavy", 1, signature="add", timeout=60.0)
        assert patient.exception(20) is None


def test_as_many_attempts_as_are_allowed_and_as_many_files_as_are_kept(bounded: PoolProcess) -> None:
    with bounded.client() as client:
        for status in (31, 32, 33):  # not the same job: that would be refused without a run
            before = slot_of(client).incarnation
            killer = client.submit("faults", status, signature="exit", timeout=60.0)
            assert isinstance(killer.exception(30), errors.Quarantined)
            assert await_ready(client, before + 1).incarnation == before + 1, "one attempt, one death"
        last = slot_of(client).incarnation

    def kept() -> list[str]:
        return sorted(path.name for pattern in ("*.job", "*-slot0-*.json") for path in bounded.state.rglob(pattern))

    # The disk is a thread's: these are the last reports, and what was quarantined last.
    newest = [f"-slot0-{last - back}.json" for back in (2, 1)]
    eventually(lambda: [name[name.find("-slot0-") :] for name in kept() if "-slot0-" in name] == newest, saw=kept)
    eventually(lambda: sum(name.endswith(".job") for name in kept()) == 1, saw=kept)


# --- [pool] min_ready, `load` and `unload` with --no-wait: three workers, without replacements beside them


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    return Ledger(tmp_path_factory.mktemp("told"))


@pytest.fixture(scope="module")
def three(told: Ledger) -> Iterator[PoolProcess]:
    models = '[[model]]\nname = "echo"\npath = "stub:echo"\ndevices = "all"\n'
    models += f'[[model]]\nname = "told"\npath = "stub:counter?{told.path}"\n'
    rest = '[restart]\nreplacement = "off"\n'
    config = stub_config("min_ready = 2", '["cpu", "cpu", "cpu"]', models, rest)
    with started(config, "--log-format", "json") as running:
        yield running


def test_a_slot_that_is_needed_is_not_restarted_until_another_is_there(three: PoolProcess, told: Ledger) -> None:
    """One slot is away for as long as its job runs; without the bound the next would go beside it."""
    with three.client() as client:
        with told.occupied(client, "told"):
            (away,) = [slot.slot for slot in client.status().slots if slot.busy_lanes]
            needed = (away + 1) % 3
            back = client.restart(away)
            eventually(lambda: slot_of(client, away).state == "DRAINING")
            wanted = client.restart(needed, rolling=True)
        await_ready(client, back, away)
        await_ready(client, wanted, needed)
    # Each was READY at the start, and is again; the log is a thread's.
    eventually(lambda: three.text().count('"slot_ready"') >= 3 + 2 and three.text().endswith("\n"), saw=three.text)
    steps = [(line["slot"], line["event"]) for line in events(three) if line["event"].startswith("slot_")]
    once_ready = {slot: steps.index((slot, "slot_ready")) for slot in (away, needed)}
    left = {
        slot: next(at for at, (of, _) in enumerate(steps) if of == slot and at > ready)
        for slot, ready in once_ready.items()
    }
    assert left[away] < steps.index((away, "slot_ready"), left[away]) < left[needed], steps


def test_a_model_is_loaded_and_unloaded_without_a_wait(three: PoolProcess, told: Ledger) -> None:
    """Each command ends while what it would wait for cannot: a load that never ends, and a job at a gate."""
    with three.client() as client:
        done = in_process("load", "endless", "stub:load-hang", "--no-wait", pool=three)
        assert (done.status, done.err) == (0, "")
        eventually(lambda: any(slot.state == "LOADING" for slot in client.status().slots), 20, client.status)
        done = in_process("unload", "endless", "--no-wait", pool=three)
        assert (done.status, done.err) == (0, "")
        eventually(lambda: all(slot.state == "READY" for slot in client.status().slots), 40, client.status)
        with told.occupied(client, "told") as running:
            done = in_process("unload", "told", "--no-wait", pool=three)
            assert (done.status, done.err) == (0, "")
            assert not running.done()
        assert running.result(30)["total"].tolist() == [-1]
        eventually(lambda: "told" not in [model.name for model in client.models()], 40)


# --- [health], [restart] period, [recycle] age, `start --log-level debug`


@pytest.fixture(scope="module")
def watched() -> Iterator[PoolProcess]:
    """`period` is over as soon as a worker is READY, so that no number of deaths gives the slot up."""
    rest = '[restart]\nintensity = 1\nperiod = "10ms"\nbackoff_max = "100ms"\n'
    rest += '[health]\nheartbeat = "200ms"\nsilent_after = "3s"\nload_timeout = "1500ms"\nwarmup_timeout = "1500ms"\n'
    with started(stub_config("", '["cpu"]', ECHO, rest), "--log-level", "debug") as running:
        yield running


def test_debug_shows_the_fields_of_each_line(watched: PoolProcess) -> None:
    (line,) = [line for line in watched.text().splitlines() if " ready: 1 of 1 slots serve" in line]
    assert f" · event=ready serving=1 slots=1 endpoint={watched.endpoint}" in line


@pytest.mark.parametrize(
    ("path", "key"), [("stub:load-hang", "load_timeout"), ("stub:rows?run_ms=100000", "warmup_timeout")]
)
def test_a_phase_has_the_time_that_its_key_gives(watched: PoolProcess, path: str, key: str) -> None:
    done = in_process("load", "slow", path, pool=watched)
    assert done.status == 1, done
    assert f"within 1.5 s ([health] {key} may be too short)" in done.err


def test_deaths_that_lie_further_apart_than_the_period_give_no_slot_up(watched: PoolProcess) -> None:
    with watched.client() as client:
        for _ in range(3):
            slot = slot_of(client)
            os.kill(pid_of(slot), signal.SIGKILL)
            await_ready(client, slot.incarnation + 1)


def test_an_idle_worker_may_be_silent_for_as_long_as_its_key_says(watched: PoolProcess) -> None:
    with watched.client() as client:
        before = len(watched.text())
        slot = slot_of(client)
        freeze(pid_of(slot))
        await_ready(client, slot.incarnation + 1)

    def said() -> list[str]:
        lines = watched.text()[before:].splitlines()
        return [line for line in lines if "silent_after" in line and "event=slot_backoff" in line]

    eventually(lambda: bool(said()))
    line = said()[0]
    (silent_s,) = re.findall(r"gave no sign of life for (\d+) s \(\[health\] silent_after\)\"", line)
    assert int(silent_s) >= 3


def test_a_worker_that_has_served_for_long_is_replaced() -> None:
    with pool_process(stub_config("", '["cpu"]', ECHO, '[recycle]\nage = "1s"\n')) as pool, pool.client() as client:
        first = slot_of(client)
        await_ready(client, first.incarnation + 1)
        assert client.run("echo", 1.0)["x"] == 1.0
        said = pool.whole_log()
        assert "([recycle] age)" in said
        assert "BACKOFF" not in said, "its replacement was there"
