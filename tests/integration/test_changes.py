"""What a pool serves changes while jobs run: none is lost, none is answered by what was not wanted."""

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pool import Client, errors
from support.machine import Disk, cards
from support.pools import RunningPool, StartPool, row, until


def config(*models: str, devices: str = '["cpu", "cpu"]', more: str = "") -> str:
    head = f'[pool]\ndevices = {devices}\nwatch = "100ms"\n{more}\n'
    return head + "\n".join(f"[[model]]\n{each}" for each in models)


@pytest.fixture
def load() -> Iterator[Callable[[RunningPool, str], list[tuple[str, float]]]]:
    """`load(pool, model)`: jobs of it one after the other until the test ends; version and factor of each answer."""
    is_over = threading.Event()

    def run(pool: RunningPool, model: str, seen: list[tuple[str, float]]) -> None:
        with Client(pool.endpoint) as client:
            while not is_over.is_set():
                result = client.run(model, row(1.0))
                seen.append((result.version, float(result["y"].item())))

    with ThreadPoolExecutor() as threads:
        loads: list[Future[None]] = []

        def start(pool: RunningPool, model: str) -> list[tuple[str, float]]:
            seen: list[tuple[str, float]] = []
            loads.append(threads.submit(run, pool, model, seen))
            return seen

        yield start
        is_over.set()
        for each in loads:
            each.result(60)  # no job is lost or failed


def served(client: Client, model: str) -> set[str]:
    return {slot["versions"].get(model, ["none"])[0] for slot in client.status()["slots"]}


def test_a_new_version_takes_over_and_a_broken_one_never_does(start_pool: StartPool, disk: Disk, load: Any) -> None:
    disk.write(2, "double?load=kill")
    pool = start_pool(config(f'name = "m"\npath = "{disk.path}"', 'name = "other"\npath = "stub:double"'))
    seen, others = load(pool, "m"), load(pool, "other")
    with Client(pool.endpoint) as client:
        assert client.run("m", row()).version == "1"
        disk.write(3, "double?times=2")
        until(lambda: served(client, "m") == {"3"}, "version 3 in both slots")
        assert client.run("m", row(), timeout=5)["y"].item() == 2.0
        told = pool.log.read_text()  # version 2 came to rest before the pool's first look, or after it
        disk.write(4, "double?load=fail")
        disk.write(5, "double?load=kill")
        until(lambda: pool.log.read_text()[len(told) :].count("what was served before stays") == 2, "both to fail")
        until(lambda: client.status()["pool"]["state"] == "READY", "all to be as before")
        assert served(client, "m") == {"3"}
        shutil.rmtree(disk.folder / "3")
        until(lambda: served(client, "m") == {"1"}, "version 1, since the others are broken or gone")
    assert dict(seen) == {"1": 1.0, "3": 2.0}
    assert {factor for _, factor in others} == {2.0}
    told = pool.log.read_text()
    assert told.count("loads m 5") == told.count("told to fail; what was served before stays") == 1, "one slot, once"


def test_a_client_follows_a_version_that_takes_something_else(start_pool: StartPool, disk: Disk) -> None:
    """What it knows of a signature is a second old at most where an input does not fit: here, or in the worker."""
    pool = start_pool(config(f'name = "m"\npath = "{disk.path}"', devices='["cpu"]'))
    wide = {"x": [[1, 2]]}
    with Client(pool.endpoint) as client:

        def answered() -> Any:
            with suppress(errors.InvalidInput):
                return client.run("m", wide)

        assert client.run("m", {"x": [[1.0]]}).version == "1"
        assert answered() is None
        for version, dtype in (("2", "float64"), ("3", "int32")):  # refused by its shape here, by its dtype there
            disk.write(version, f"double?width=2&dtype={dtype}")
            until(lambda version=version: served(client, "m") == {version}, f"version {version}")
            result = until(answered, "an answer")
            assert (result.version, result["y"].dtype, result["y"].tolist()) == (version, dtype, [[2, 4]])
        disk.write(4, "double?width=2")
        until(lambda: served(client, "m") == {"4"}, "version 4")
        assert [each["y"].dtype for each in client.map("m", wide)] == ["float32"], "a map asks first"


def test_folders_that_are_no_versions_are_named_once(start_pool: StartPool, disk: Disk) -> None:
    disk.write("20231201123456123456789", "double?times=7")
    pool = start_pool(config(f'name = "m"\npath = "{disk.path}"'))
    with Client(pool.endpoint) as client:
        assert client.run("m", row()).version == "1"
        disk.write("18446744073709551615", "double?times=8")
        disk.write("01", "double?times=9")
        disk.write("notes", "double?times=10")
        disk.write(2, "double?times=2")
        until(lambda: served(client, "m") == {"2"}, "the next number")
    told = pool.log.read_text()
    for name in ("20231201123456123456789", "18446744073709551615"):
        assert told.count(f"/{name} is no version: its number is not below 2**63") == 1
    assert told.count("/01 is no version") == 1
    assert "notes" not in told


def test_files_that_change_in_place_are_another_version(start_pool: StartPool, disk: Disk, load: Any) -> None:
    pool = start_pool(config(f'name = "m"\npath = "{disk.path}"', devices='["cpu", "cpu", "cpu"]'))
    seen = load(pool, "m")
    with Client(pool.endpoint) as client:
        until(lambda: seen, "an answer")
        disk.write(1, "double?times=5")
        until(lambda: all("+" in version for version in served(client, "m")), "all slots to load anew")
        assert len(served(client, "m")) == 1
        until(lambda: seen[-1][1] == 5.0, "an answer of the new files")
        files = {slot["versions"]["m"][1] for slot in client.status()["slots"]}
        assert len(files) == 1, "status says which files each slot serves"
        disk.write(1, "double?load=fail")
        until(lambda: "what was served before stays" in pool.log.read_text(), "the broken files to be tried")
        until(lambda: client.status()["pool"]["state"] == "READY", "all to be as before")
        assert client.run("m", row())["y"].item() == 5.0
        victim = client.status()["slots"][0]
        os.kill(victim["pid"], 9)
        until(lambda: "have changed since the pool looked" in pool.log.read_text(), "the other worker's refusal")
        assert client.run("m", row())["y"].item() == 5.0
    assert {factor for version, factor in seen if version == "1"} == {1.0}
    assert {factor for version, factor in seen if "+" in version} == {5.0}


def test_a_configuration_is_read_again(start_pool: StartPool, tmp_path: Path, load: Any) -> None:
    stays, log = 'name = "stays"\npath = "stub:double"', tmp_path / "log"
    leaves = f'name = "leaves"\npath = "stub:double?gate={tmp_path}/gate&log={log}"'
    pool = start_pool(config(stays, leaves))
    seen = load(pool, "stays")
    with Client(pool.endpoint) as client:
        waiting = client.submit_many("leaves", [row(float(number)) for number in range(20)])
        until(lambda: sum("leaves" in slot["doing"] for slot in client.status()["slots"]) == 2, "runs at the gate")
        path = pool.folder / "config.toml"
        path.write_text(config(stays + "\nmax_batch = 8", 'name = "comes"\npath = "stub:double?times=7"'))
        reload = threading.Thread(target=client.reload)
        reload.start()
        until(lambda: "loads" in str(client.status()["changes"]), "what is done for it")
        until(lambda: "comes" in client.status()["slots"][0]["models"] + client.status()["slots"][1]["models"], "it")
        with pytest.raises(errors.ModelNotFound):
            client.run("leaves", row(100.0))  # it is taken no more
        (tmp_path / "gate").touch()
        assert [future.result()["y"].item() for future in waiting] == [2.0 * number for number in range(20)]
        reload.join(60)
        assert client.run("comes", row())["y"].item() == 7.0
        assert [slot["models"] for slot in client.status()["slots"]] == [["comes", "stays"]] * 2
        assert client.model("stays")["signatures"]["serving_default"]["max_batch"] == 8
        for text, reason in (
            (config(stays, devices='["cpu"]'), r"\[pool\].*needs a new pool"),
            (config(stays) + "\nmax_bach = 3", r"config\.toml:\d+: .*did you mean 'max_batch'"),
        ):
            path.write_text(text)
            with pytest.raises(errors.InvalidConfig, match=reason):
                client.reload()
        assert client.run("comes", row())["y"].item() == 7.0
    assert {factor for _, factor in seen} == {2.0}
    assert sorted(line.split()[1] for line in log.read_text().splitlines()) == sorted(map(str, range(20)))


def test_a_bound_of_the_queue_counts_from_a_reload_on(start_pool: StartPool, tmp_path: Path) -> None:
    model = f'name = "m"\npath = "stub:double?gate={tmp_path}/gate"'
    pool = start_pool(config(model))
    (pool.folder / "config.toml").write_text(config(model, more="[queue]\nmax_jobs = 2"))
    with Client(pool.endpoint) as client:
        client.reload()
        *taken, refused = client.submit_many("m", [row()] * 3)
        assert isinstance(refused.exception(60), errors.Overloaded)
        (tmp_path / "gate").touch()
        assert [future.result(60)["y"].item() for future in taken] == [2.0, 2.0]


def test_models_are_loaded_and_unloaded_one_request_after_the_other(start_pool: StartPool, load: Any) -> None:
    pool = start_pool(config('name = "stays"\npath = "stub:double"'))
    load(pool, "stays")
    with Client(pool.endpoint) as client:
        with ThreadPoolExecutor() as threads:
            made = [threads.submit(client.load, f"m{n}", f"stub:double?times={n}") for n in range(3)]
            for each in made:
                each.result(60)
        assert [client.run(f"m{n}", row())["y"].item() for n in range(3)] == [0.0, 1.0, 2.0]
        before = client.status()["slots"]
        for fault, error in (("fail", "told to fail"), ("later", "no memory now"), ("kill", "SIGKILL")):
            with pytest.raises(errors.ModelFailed, match=f"{error}.*what was served before stays"):
                client.load("bad", f"stub:double?load={fault}")
        with pytest.raises(errors.InvalidConfig, match="max_bach: is unknown; did you mean 'max_batch'"):
            client.load("bad", "stub:double", max_bach=3)
        with pytest.raises(errors.InvalidConfig, match="no model 'm7'"):
            client.unload("m7")
        until(lambda: client.status()["pool"]["state"] == "READY", "all to be as before")
        after = client.status()["slots"]
        assert [slot["pid"] for slot in after] == [slot["pid"] for slot in before], "they served on"
        client.unload("m1")
        with pytest.raises(errors.ModelNotFound):
            client.run("m1", row())
        assert client.run("m2", row())["y"].item() == 2.0


def test_a_restart_moves_a_stateful_model_between_two_jobs(start_pool: StartPool, tmp_path: Path) -> None:
    log = tmp_path / "log"
    pool = start_pool(config(f'name = "count"\npath = "stub:count?log={log}&sleep=0.01"'))
    with Client(pool.endpoint) as client:
        futures = client.submit_many("count", [row(float(number)) for number in range(150)])
        before = {slot["pid"] for slot in client.status()["slots"]}
        client.restart()
        wait(futures, 60)
        counted = [int(future.result()["y"].item()) for future in futures]
        assert before.isdisjoint(slot["pid"] for slot in client.status()["slots"])
    lines = [line.split() for line in log.read_text().splitlines()]
    assert [float(value) for _, value in lines] == [float(number) for number in range(150)], "each once, in order"
    pids = [pid for pid, _ in lines]
    changes = [at for at in range(1, 150) if pids[at] != pids[at - 1]]
    assert changes, "the premise: it moved while jobs ran"
    assert len(set(pids)) == len(changes) + 1, "and never went back, so no two workers ran it at the same time"
    assert [at for at in range(1, 150) if counted[at] == 0] == changes


def test_a_slot_is_drained_and_used_again(start_pool: StartPool, load: Any) -> None:
    pool = start_pool(config('name = "m"\npath = "stub:double"', 'name = "pinned"\npath = "stub:double"\nreplicas = 1'))
    load(pool, "m")
    load(pool, "pinned")
    with Client(pool.endpoint) as client:
        slot = next(slot["slot"] for slot in client.status()["slots"] if "pinned" in slot["models"])
        client.drain(slot)
        (left,) = client.status()["slots"]
        assert (left["slot"], left["models"]) == (1 - slot, ["m", "pinned"]), "its models went to the other one first"
        assert client.status()["away"] == [slot]
        with pytest.raises(errors.InvalidConfig, match="model m: all of its slots are drained"):
            client.drain(1 - slot)
        client.undrain(slot)
        assert {each["slot"] for each in client.status()["slots"]} == {0, 1}
        with pytest.raises(errors.InvalidInput, match="no slot 7"):
            client.drain(7)


@pytest.mark.parametrize("fault", ["fail", "kill", "hang", "later"])
def test_one_bad_model_of_thirty_keeps_its_slot_from_serving_it_alone(start_pool: StartPool, fault: str) -> None:
    models = [f'name = "m{n}"\npath = "stub:double?times={n}"' for n in range(29)]
    models.insert(15, f'name = "bad"\npath = "stub:double?load={fault}"')
    pool = start_pool(config(*models, devices='["cpu"]', more='[health]\nload_timeout = "1s"'))
    with Client(pool.endpoint) as client:
        assert [client.run(f"m{n}", row())["y"].item() for n in range(29)] == [float(n) for n in range(29)]
        with pytest.raises(errors.ModelFailed, match="model bad"):
            client.run("bad", row())
        assert client.status()["pool"]["state"] == "DEGRADED"
        assert "bad is not served: " in str(client.reload()["lines"])


# --- GPUs -----------------------------------------------------------------------------------------------------------


FOUR = [f'name = "{name}"\npath = "stub:double?times={n}"\ndevice_memory = "6GiB"' for n, name in enumerate("abcd")]


@pytest.mark.parametrize("number", [2, 4, 8])
def test_four_models_on_gpus(start_pool: StartPool, told: Any, number: int) -> None:
    told(*cards(number))
    pool = start_pool(config(*FOUR, devices='"auto"'))
    with Client(pool.endpoint) as client:
        assert [client.run(name, row())["y"].item() for name in "abcd"] == [0.0, 1.0, 2.0, 3.0]
        placed = [len(slot["models"]) for slot in client.status()["slots"]]
        assert placed == [2 if number == 2 else 1] * number
        with pytest.raises(errors.InvalidConfig, match=r"do not fit the devices(.*\n)*  huge +40.0 GiB"):
            client.load("huge", "stub:double?times=0", device_memory="40GiB")  # the path of another one, too


def test_the_models_of_a_lost_gpu_are_placed_anew(start_pool: StartPool, told: Any, load: Any) -> None:
    told(*cards(3))
    pool = start_pool(config(*FOUR[:3], devices='"auto"'))
    load(pool, "a")
    with Client(pool.endpoint) as client:
        home = {name: slot["slot"] for slot in client.status()["slots"] for name in slot["models"]}
        told(*cards(3, home["b"]))
        until(lambda: home["b"] in client.status()["away"], "NVML's word to count")
        until(lambda: client.status()["pool"]["state"] == "READY", "b elsewhere")
        assert client.run("b", row(), timeout=20)["y"].item() == 1.0
        left = set(home.values()) - {home["b"]}
        until(lambda: {slot["slot"] for slot in client.status()["slots"]} == left, "the end of its worker")
        told(*cards(3))
        until(lambda: client.restart(home["b"]) and not client.status()["away"], "NVML to find it again")


def test_a_worker_serves_as_many_models_as_a_pool_may_have(start_pool: StartPool) -> None:
    pool = start_pool(config(*(f'name = "m{number}"\npath = "stub:double"' for number in range(500))))
    with Client(pool.endpoint) as client:
        assert client.run("m499", row())["y"].item() == 2.0
