"""A gateway of two real pools, of which one is killed, frozen, full, or has other models."""

import contextlib
import hashlib
import json
import os
import signal
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families
from tritonclient.http import InferenceServerClient, InferInput

from gateway.running import Gateway, gateway
from pool.wire.gateway import Token
from support.foreground_gateway import foreground, url_of
from support.pool_process import PoolProcess
from support.processes import eventually, freeze
from support.several_pools import MODEL, models, started

pytestmark = pytest.mark.remote

ANSWER_S = 60.0


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool is not silent because a busy machine holds it up; where one is to be, the test says after how long."""
    monkeypatch.setattr("pool.client.pulse.SILENCE_S", ANSWER_S)
    for module in ("spread", "survey"):
        monkeypatch.setattr(f"pool.client.spread.{module}.SILENT_S", ANSWER_S)


@contextlib.contextmanager
def served(*configs: str, rest: str = "", **settings: Any) -> Iterator[tuple[Gateway, list[PoolProcess]]]:
    with started(*configs, rest=rest) as pools, gateway(*(pool.endpoint for pool in pools), **settings) as door:
        eventually(lambda: set(up(door).values()) == {1.0})
        yield door, pools


def whose(door: Gateway, jobs: int = 20) -> Counter[float]:
    body = {"instances": [0.0]}
    answers = [requests.post(f"{door.url}/v1/models/whose:predict", json=body, timeout=ANSWER_S) for _ in range(jobs)]
    return Counter(answer.json()["predictions"][0] for answer in answers)


def up(door: Gateway) -> dict[str, float]:
    return {labels["pool"]: value for labels, value in metric(door, "pool_up")}


def used(door: Gateway) -> set[str]:
    """The pools that have had jobs since their start."""
    return {labels["pool"] for labels, jobs in metric(door, "pool_jobs_total") if jobs}


def metric(door: Gateway, name: str) -> list[tuple[dict[str, str], float]]:
    text = requests.get(f"{door.url}/metrics", timeout=20).text
    families = text_string_to_metric_families(text)
    return [(each.labels, each.value) for family in families for each in family.samples if each.name == name]


class Load:
    """Requests of both protocols, each with a number of its own, from some threads until `end`."""

    def __init__(self, door: Gateway, threads: int = 6) -> None:
        self.done = 0
        self.wrong: list[Any] = []
        self._door = door
        self._ends = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(threads)]
        for thread in self._threads:
            thread.start()

    def _run(self, number: int) -> None:
        one = self._triton if number % 2 else self._serving
        count = 0
        with requests.Session() as session:
            while not self._ends.is_set():
                count += 1
                try:
                    found = one(session, float(number * 10_000 + count))
                    if found is not None:
                        self.wrong.append(found)
                except Exception as error:
                    self.wrong.append(error)
                self.done += 1

    def _serving(self, session: requests.Session, value: float) -> Any:
        body = {"instances": [value], "signature_name": "double"}
        answer = session.post(f"{self._door.url}/v1/models/slow:predict", json=body, timeout=ANSWER_S)
        is_right = answer.status_code == 200 and answer.json()["predictions"][0]["y"] == 2 * value
        return None if is_right else (answer.status_code, answer.text)

    def _triton(self, session: requests.Session, value: float) -> Any:
        del session
        client = InferenceServerClient(self._door.address, network_timeout=ANSWER_S)
        with contextlib.closing(client):
            given = InferInput("x", [1], "FP32").set_data_from_numpy(np.array([value], np.float32))
            answer = client.infer("slow", [given], parameters={"signature": "double"})
        return None if answer.as_numpy("y").tolist() == [2 * value] else answer.get_response()

    def more(self, jobs: int) -> None:
        wanted = self.done + jobs
        eventually(lambda: self.done >= wanted, ANSWER_S, lambda: (self.done, self.wrong))

    def end(self) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join(ANSWER_S)
        assert not any(thread.is_alive() for thread in self._threads)


def test_a_pool_that_is_killed_under_load_costs_no_request_and_is_used_again() -> None:
    with served(models(1), models(2)) as (door, pools):
        load = Load(door)
        try:
            load.more(100)
            eventually(lambda: len(used(door)) == 2)
            pools[0].running.kill()
            load.more(150)
            pools[0].wait()
            assert set(whose(door)) == {2.0}
            eventually(lambda: up(door) == {pools[0].endpoint: 0.0, pools[1].endpoint: 1.0})  # it may be a second old
            assert requests.get(f"{door.url}/v2/health/ready", timeout=20).status_code == 200
            pools[0].log.unlink()
            pools[0].start().await_ready()
            load.more(100)
            # Under load: of two idle pools, the one alone may be used whose jobs have taken less time.
            eventually(lambda: len(used(door)) == 2)
        finally:
            load.end()
        assert load.wrong == []


def test_a_frozen_pool_holds_up_its_own_jobs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pool.client.pulse.PING_S", 0.2)
    for module in ("spread", "survey"):
        monkeypatch.setattr(f"pool.client.spread.{module}.SILENT_S", 0.5)
    with served(models(1), models(2)) as (door, pools):
        load = Load(door)
        try:
            load.more(100)
            freeze(pools[0].pid)
            # It does not count as gone yet: who waited for that would have no answer in his time.
            assert requests.get(f"{door.url}/v2/health/ready", timeout=20).status_code == 200
            eventually(lambda: up(door) == {pools[0].endpoint: 0.0, pools[1].endpoint: 1.0})
            assert requests.get(f"{door.url}/v2/models/slow/ready", timeout=20).status_code == 200
            assert set(whose(door)) == {2.0}
            monkeypatch.setattr("pool.client.pulse.SILENCE_S", 4.0)
            load.more(100)
            os.kill(pools[0].pid, signal.SIGCONT)
            eventually(lambda: set(up(door).values()) == {1.0})
        finally:
            os.kill(pools[0].pid, signal.SIGCONT)
            load.end()
        assert load.wrong == []


def test_models_and_versions_that_differ(tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder, version in zip(folders, (3, 4), strict=True):
        (folder / str(version)).mkdir(parents=True)
        (folder / str(version) / "saved_model.pb").write_text(f"tell?n={version}")
    configs = [
        models(n, MODEL.format("m", f"files?{folder}", "") + MODEL.format(f"only{n}", "echo", ""))
        for n, folder in enumerate(folders)
    ]
    with served(*configs) as (door, pools):
        body = {"instances": [0.0]}
        for version in (3, 4):
            for _ in range(5):
                path = f"{door.url}/v1/models/m/versions/{version}:predict"
                answer = requests.post(path, json=body, timeout=ANSWER_S)
                assert (answer.status_code, answer.text) == (200, f'{{"predictions":[{version}.0]}}')
            assert requests.get(f"{door.url}/v2/models/m/versions/{version}/ready", timeout=20).status_code == 200
        assert requests.get(f"{door.url}/v2/models/m", timeout=20).json()["versions"] == ["3", "4"]
        told = requests.get(f"{door.url}/v1/models/m", timeout=20).json()["model_version_status"]
        assert [(each["version"], each["state"]) for each in told] == [("4", "AVAILABLE"), ("3", "AVAILABLE")]

        def counted() -> dict[str, int]:
            told = requests.get(f"{door.url}/v2/models/m/stats", timeout=20).json()["model_stats"]
            return {each["version"]: each["inference_count"] for each in told}

        eventually(lambda: counted() == {"3": 5, "4": 5}, saw=counted)
        for n in range(2):
            for _ in range(5):
                answer = requests.post(f"{door.url}/v1/models/only{n}:predict", json=body, timeout=ANSWER_S)
                assert (answer.status_code, answer.text) == (200, '{"predictions":[0.0]}')
        pools[0].running.kill()
        pools[0].wait()
        eventually(lambda: requests.get(f"{door.url}/v2/models/only0/ready", timeout=20).status_code == 503)
        assert requests.get(f"{door.url}/v2/models/only0", timeout=20).status_code == 200
        assert requests.get(f"{door.url}/v2/models/only1/ready", timeout=20).status_code == 200
        assert requests.get(f"{door.url}/v2/models/nothing", timeout=20).status_code == 404


def test_a_stateful_model_keeps_to_one_pool_and_says_so_when_it_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pool.client.client.RECONNECT_S", 1.0)
    ledgers = [tmp_path / "one", tmp_path / "two"]
    configs = [models(n, MODEL.format("counter", f"counter?{ledger}", "")) for n, ledger in enumerate(ledgers)]
    with served(*configs) as (door, pools):

        def add() -> requests.Response:
            body = {"inputs": {"n": 1}, "signature_name": "add"}
            return requests.post(f"{door.url}/v1/models/counter:predict", json=body, timeout=ANSWER_S)

        answers = [add() for _ in range(10)]
        assert [answer.status_code for answer in answers] == [200] * 10, answers[0].text
        assert sorted(len(each.read_text().split()) if each.exists() else 0 for each in ledgers) == [0, 10]
        [keeper] = [n for n, ledger in enumerate(ledgers) if ledger.exists() and ledger.read_bytes()]
        pools[keeper].running.kill()
        pools[keeper].wait()
        answer = add()
        assert answer.status_code == 503
        assert "keeps its state there, so no other pool takes its jobs" in answer.text
        assert set(whose(door)) == {float(1 - keeper)}


def test_a_full_pool_is_left_for_the_other_and_two_are_an_error() -> None:
    faults = MODEL.format("faults", "faults", "")
    with (
        served(models(1, faults), models(2, faults), rest="[queue]\nmax_jobs = 1") as (door, pools),
        pools[0].client() as one,
        pools[1].client() as other,
    ):
        held = [one.submit("faults", {"seconds": np.float64(600.0)}, signature="sleep")]
        eventually(lambda: one.status().queue.jobs == 1)
        assert whose(door) == {2.0: 20}
        held.append(other.submit("faults", {"seconds": np.float64(600.0)}, signature="sleep"))
        eventually(lambda: other.status().queue.jobs == 1)
        body = {"instances": [0.0]}
        answer = requests.post(f"{door.url}/v1/models/whose:predict", json=body, timeout=ANSWER_S)
        assert answer.status_code == 503
        assert int(answer.headers["Retry-After"]) >= 1
        for each in held:
            each.cancel()


def test_who_hangs_up_cancels_his_job_in_whichever_pool() -> None:
    faults = MODEL.format("faults", "faults", "max_batch = 1")
    with served(models(1, faults), models(2, faults)) as (door, pools):
        body = json.dumps({"inputs": {"seconds": 600.0}, "signature_name": "sleep"})
        head = f"POST /v1/models/faults:predict HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        with pools[0].client() as one, pools[1].client() as other, contextlib.ExitStack() as calls:

            def jobs() -> int:
                return one.status().queue.jobs + other.status().queue.jobs

            for _ in range(4):
                call = calls.enter_context(socket.create_connection(("127.0.0.1", door.port)))
                call.sendall((head.replace("Host: x", "Host: localhost") + body).encode())
            eventually(lambda: jobs() == 4)
            assert min(client.status().queue.jobs for client in (one, other)) > 0, "both have some"
            calls.close()
            eventually(lambda: jobs() <= 2, saw=jobs)  # one may run in each pool; those that wait are gone


def test_a_large_body_is_the_same_in_each_pool() -> None:
    """It lies in ordinary memory, as nobody knows yet whose job it will be."""
    echo = MODEL.format("echo", "echo", "")
    with served(models(1, echo), models(2, echo)) as (door, _):
        value = np.random.default_rng(7).random(1 << 20, np.float32)
        client = InferenceServerClient(door.address, network_timeout=ANSWER_S)
        with contextlib.closing(client):
            given = InferInput("x", list(value.shape), "FP32").set_data_from_numpy(value)
            for _ in range(8):
                answer = client.infer("echo", [given])
                assert np.array_equal(answer.as_numpy("x"), value)


def test_a_token_is_a_client_of_each_pool_with_its_bounds_there() -> None:
    rest = '[[client]]\nname = "alice"\nmodels = ["whose"]\n[[client]]\nname = "rare"\nrate = 0.001\n'
    tokens = tuple(Token(name, hashlib.sha256(name.encode()).digest()) for name in ("alice", "rare"))
    with (
        started(models(1), models(2), rest=rest) as pools,
        gateway(*(p.endpoint for p in pools), tokens=tokens) as door,
    ):

        def ask(name: str, model: str = "whose") -> requests.Response:
            headers = {"Authorization": f"Bearer {name}"}
            body = {"instances": [0.0]}
            return requests.post(f"{door.url}/v1/models/{model}:predict", json=body, headers=headers, timeout=ANSWER_S)

        assert {ask("alice").status_code for _ in range(10)} == {200}
        assert ask("alice", "slow").status_code in (403, 404), "of which she is told no more than of any other"
        assert requests.post(f"{door.url}/v1/models/whose:predict", timeout=ANSWER_S).status_code == 401
        answers = [ask("rare") for _ in range(4)]
        assert sorted(answer.status_code for answer in answers) == [200, 200, 429, 429], "one job in each pool"
        found = {answer.json()["predictions"][0] for answer in answers if answer.status_code == 200}
        assert found == {1.0, 2.0}


def test_models_are_loaded_and_unloaded_in_all_pools() -> None:
    echo = MODEL.format("echo", "echo", "")
    with served(models(1, echo), models(2, echo), repository_control=True) as (door, pools):
        client = InferenceServerClient(door.address, network_timeout=ANSWER_S)
        with contextlib.closing(client), pools[0].client() as one, pools[1].client() as other:

            def having() -> list[bool]:
                return [any(model.name == "echo" for model in each.models()) for each in (one, other)]

            client.unload_model("echo")
            eventually(lambda: having() == [False, False])
            client.load_model("echo")
            assert having() == [True, True]
            assert client.is_model_ready("echo")
            pools[1].running.kill()
            pools[1].wait()
            answer = requests.post(f"{door.url}/v2/repository/models/echo/unload", timeout=ANSWER_S)
            assert (answer.status_code, "in all pools" in answer.text) == (503, True), answer.text
            assert any(model.name == "echo" for model in one.models())


@pytest.mark.parametrize("processes", [1, 2])
def test_the_command_says_which_pools_it_answers_for(tmp_path: Path, processes: int) -> None:
    with started(models(1), models(2)) as pools:
        options = [text for pool in pools for text in ("--endpoint", pool.endpoint)]
        options += ["--listen", "127.0.0.1:0", "--processes", str(processes)]
        with foreground(tmp_path, *options) as (process, log):
            url = url_of(log, process)
            assert f"answers for the pools {pools[0].endpoint}, {pools[1].endpoint}" in log.read_text()
            door = Gateway(int(url.rpartition(":")[2]))
            load = Load(door)
            try:
                eventually(lambda: len(used(door)) == 2)
            finally:
                load.end()
            assert load.wrong == []
            process.terminate()
            assert process.wait(30) == 0, log.read_text()
            assert "Traceback" not in log.read_text()
