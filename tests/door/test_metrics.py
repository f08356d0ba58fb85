"""What `/metrics` says, as Prometheus's own tools and a Prometheus read it; and the files that ask for it."""

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families as parsed

from pool import Client
from pool.docs import pages
from pool.door.metrics import of_pool
from pool.errors import ModelFailed
from support.doors import RunningDoor, free_address, infer, listens, start_door
from support.pools import RunningPool, StartPool, row, until

pytestmark = pytest.mark.door

needs_prometheus = pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs Debian's package prometheus")

ALERTS = (files("pool.door") / "dashboards" / "alerts.yml").read_text("utf-8")
BOARD = json.loads((files("pool.door") / "dashboards" / "grafana.json").read_text("utf-8"))
PAGE = pages()["monitoring"]
OF_BOARD = [target["expr"] for panel in BOARD["panels"] for target in panel.get("targets", ())]
OF_PAGE = re.findall(r"^\| [^|`]+ \| `(.*)` \|$", PAGE, re.M)
OF_ALERTS = re.findall(r"expr: (.*(?:\n {10,}.*)*)", ALERTS)

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scraped(door: RunningDoor, path: str = "/metrics") -> str:
    answer = httpx.get(door.url + path, timeout=30)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return answer.text


def samples(text: str) -> Samples:
    """Raises where one is there twice, for which Prometheus would refuse the whole scrape."""
    found: Samples = {}
    for sample in [sample for family in parsed(text) for sample in family.samples]:
        key = (sample.name, frozenset(sample.labels.items()))
        assert key not in found, key
        found[key] = sample.value
    return found


def value(text: str, name: str, **labels: str) -> float | None:
    return samples(text).get((name, frozenset(labels.items())))


def promtool(*arguments: str, told: str = "") -> str:
    done = subprocess.run(["promtool", *arguments], input=told, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_jobs_are_counted_by_how_they_end(start_pool: StartPool) -> None:
    pool = start_pool('[pool]\ndevices = ["cpu"]\n[[model]]\nname = "double"\npath = "stub:double"\n')
    with start_door(pool) as door, Client(pool.endpoint) as client:
        text = scraped(door, "/monitoring/prometheus/metrics")
        assert value(text, "pool_jobs_total", model="double", outcome="ModelFailed") == 0.0
        for _ in range(20):
            client.run("double", row())
        with pytest.raises(ModelFailed):
            client.run("double", row(-1.0))
        text = scraped(door)
        assert value(text, "pool_jobs_total", model="double", outcome="done") == 20.0
        assert value(text, "pool_jobs_total", model="double", outcome="ModelFailed") == 1.0
        assert value(text, "pool_batch_run_seconds_count", model="double") == 21.0
        assert 0.0 < (value(text, "pool_batch_run_seconds_sum", model="double") or 0.0) < 20.0
        assert value(text, "pool_slot_jobs_total", slot="0", device="cpu:0") == 21.0
        os.kill(pool.workers()[0], signal.SIGKILL)
        killed = {"slot": "0", "device": "cpu:0", "cause": "SIGKILL"}
        until(lambda: value(scraped(door), "pool_worker_deaths_total", **killed) == 1.0, "the death is counted")
        os.kill(pool.pid, signal.SIGSTOP)  # it cannot answer, and nobody waits for it for long
        try:
            assert value(scraped(door), "pool_up") == 0.0
        finally:
            os.kill(pool.pid, signal.SIGCONT)
        until(lambda: value(scraped(door), "pool_up") == 1.0, "the pool answers again")
        pool.stop()
        assert samples(scraped(door)) == {("pool_up", frozenset()): 0.0}


def test_the_door_counts_its_own_jobs_and_names_no_model_that_callers_invent(door: RunningDoor) -> None:
    for model in ("nothing", "double", "no%0Athing"):
        infer(door.address, model=model)
    httpx.post(f"{door.url}/v1/models/double:predict", json={"instances": [-1.0]})
    text = scraped(door)
    assert {dict(labels)["model"] for name, labels in samples(text) if "door" in name} == {"", "double"}
    assert value(text, "pool_door_requests_total", protocol="inference", model="", outcome="ModelNotFound") == 2.0
    assert value(text, "pool_door_requests_total", protocol="serving", model="double", outcome="ModelFailed") == 1.0
    assert value(text, "pool_door_request_duration_seconds_count", protocol="inference", model="double") == 1.0


def test_a_slot_whose_worker_is_replaced_and_a_gpu_of_two_slots_are_told_once() -> None:
    gpu = {"uuid": "GPU-1", "used_bytes": 5, "total_bytes": None, "utilization": None, "temperature": 40}
    slot = {"slot": 0, "device": "gpu:0", "gpus": [gpu], "state": "READY", "jobs": 7, "busy": 1, "restarts": 0}
    slot["deaths"] = {"exit": 2}
    record = {"pool": {"release": "1", "state": "READY", "uptime_s": 1.0}, "models": []}
    record["queue"] = dict.fromkeys(("jobs", "bytes", "max_jobs", "max_bytes"), 0)
    record["slots"] = [slot, {**slot, "state": "LOADING", "jobs": 0}, {**slot, "slot": 1}]
    text = generate_latest(SimpleNamespace(collect=lambda: of_pool(record))).decode()
    assert value(text, "pool_slot_state", slot="0", device="gpu:0", state="READY") == 1.0
    assert value(text, "pool_slot_jobs_total", slot="0", device="gpu:0") == 7.0
    assert value(text, "pool_worker_deaths_total", slot="1", device="gpu:0", cause="exit") == 2.0
    assert value(text, "pool_gpu_memory_used_bytes", uuid="GPU-1") == 5.0
    assert value(text, "pool_gpu_utilization_percent", uuid="GPU-1") is None


def test_board_alerts_and_page_name_only_what_is_told(door: RunningDoor) -> None:
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", scraped(door), re.M))
    histograms = [name for name, kind in kinds.items() if kind == "histogram"]
    known = {*kinds, *(f"{name}_{end}" for name in histograms for end in ("bucket", "sum", "count"))}
    for expression in OF_BOARD + OF_ALERTS + OF_PAGE:
        named = set(re.findall(r"\bpool_\w+", expression))
        assert named <= known, expression
    assert sorted(re.findall(r"^\| `(pool_\w+)`", PAGE, re.M)) == sorted(kinds)


@needs_prometheus
def test_prometheus_own_tool_finds_nothing_wrong(door: RunningDoor, tmp_path: Path) -> None:
    assert promtool("check", "metrics", told=scraped(door)) == ""
    (tmp_path / "alerts.yml").write_text(ALERTS)
    assert "10 rules found" in promtool("check", "rules", str(tmp_path / "alerts.yml"))
    expressions = [each.replace("$__rate_interval", "5m") for each in OF_BOARD + OF_PAGE]
    rules = [{"record": f"board:{number}", "expr": each} for number, each in enumerate(expressions)]
    (tmp_path / "board.yml").write_text(json.dumps({"groups": [{"name": "board", "rules": rules}]}))
    assert f"{len(rules)} rules found" in promtool("check", "rules", str(tmp_path / "board.yml"))


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[str]:
    """One that scrapes this door every second, with the shipped rules."""
    (folder / "alerts.yml").write_text(ALERTS)
    scrapes = [{"job_name": "pool", "static_configs": [{"targets": [target]}]}]
    often = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    settings = {"global": often, "rule_files": ["alerts.yml"], "scrape_configs": scrapes}
    (folder / "prometheus.yml").write_text(json.dumps(settings))
    address = free_address()
    files = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    command = ["prometheus", *files, f"--web.listen-address={address}"]
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            until(lambda: listens(address), "Prometheus")
            yield f"http://{address}/api/v1"
        finally:
            process.terminate()


@needs_prometheus
def test_a_real_prometheus_has_what_the_pool_has(running: RunningPool, door: RunningDoor, tmp_path: Path) -> None:
    def asked(path: str, **query: str) -> Any:
        answer = httpx.get(f"{where}/{path}", params=query, timeout=20)
        return answer.json()["data"] if answer.status_code == 200 else {}  # it starts

    def number(expression: str) -> float | None:
        found = asked("query", query=expression).get("result")
        return float(found[0]["value"][1]) if found else None

    done = 'sum(pool_jobs_total{outcome="done"})'
    with Client(running.endpoint) as client, prometheus(tmp_path, door.address) as where:
        until(lambda: number(done) is not None, "the first scrape")
        before = sum(each["done"] for each in client.status()["models"])
        for _ in range(20):
            client.run("double", row())
        until(lambda: number(done) == before + 20.0, "its number of jobs")
        until(lambda: number('sum(pool_slot_state{state="READY"})') == 1.0, "its slot")
        assert [(each["health"], each["lastError"]) for each in asked("targets")["activeTargets"]] == [("up", "")]
        until(lambda: {each["health"] for each in asked("rules")["groups"][0]["rules"]} == {"ok"}, "its rules")
