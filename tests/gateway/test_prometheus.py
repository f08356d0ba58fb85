"""Prometheus itself reads what a gateway tells, and its own tools judge the rules and names that are shipped."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests

from gateway.running import Gateway, gateway
from pool.errors import ModelFailed
from pool.gateway.metrics.families import FAMILIES
from support.commands import run_command
from support.pool_process import PoolProcess
from support.processes import eventually

pytestmark = pytest.mark.gateway

WHY = "needs Debian's package `prometheus`; .ci/run unpacks it"
needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason=WHY)
needs_prometheus = pytest.mark.skipif(shutil.which("prometheus") is None, reason=WHY)

DASHBOARDS = files("pool.gateway") / "metrics" / "dashboards"
ALERTS = (DASHBOARDS / "alerts.yml").read_text(encoding="utf-8")
BOARD = json.loads((DASHBOARDS / "grafana.json").read_text(encoding="utf-8"))
SAMPLES = {
    sample
    for name, family in FAMILIES.items()
    for sample in ([f"{name}_{end}" for end in ("bucket", "sum", "count")] if family.kind == "histogram" else [name])
}


def promtool(*arguments: str, told: str = "") -> str:
    done = subprocess.run(["promtool", *arguments], input=told, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def expressions(panels: list[dict[str, Any]]) -> Iterator[str]:
    for panel in panels:
        yield from (target["expr"] for target in panel.get("targets", ()))


@pytest.mark.parametrize("where", ["alerts", "dashboard"])
def test_rules_and_dashboard_ask_only_for_what_is_told(where: str) -> None:
    asked = (
        list(expressions(BOARD["panels"])) if where == "dashboard" else re.findall(r"expr: (.*(?:\n {10,}.*)*)", ALERTS)
    )
    assert len(asked) > 10
    for expression in asked:
        names = set(re.findall(r"\bpool_\w+", expression))
        assert names or 'up{job="pool"}' in expression, expression
        assert names <= SAMPLES, expression


def test_the_dashboard_shows_each_family_that_changes() -> None:
    shown = " ".join(expressions(BOARD["panels"]))
    kinds = ("queue", "batch_wait", "run", "duration")
    for name in (
        *(f"pool_job_{kind}_seconds" for kind in kinds),
        "pool_jobs_total",
        "pool_batch_rows",
        "pool_slot_state",
    ):
        assert name in shown
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])


@needs_promtool
def test_the_alert_rules_are_valid(tmp_path: Path) -> None:
    path = tmp_path / "alerts.yml"
    path.write_text(ALERTS)
    assert "12 rules found" in promtool("check", "rules", str(path))


@needs_promtool
def test_the_dashboards_expressions_are_valid(tmp_path: Path) -> None:
    """As the rules that they are not."""
    rules = [
        {"record": f"board:{number}", "expr": re.sub(r"\$__rate_interval", "5m", expression)}
        for number, expression in enumerate(expressions(BOARD["panels"]))
    ]
    path = tmp_path / "board.yml"
    path.write_text(json.dumps({"groups": [{"name": "board", "rules": rules}]}))
    assert f"{len(rules)} rules found" in promtool("check", "rules", str(path))


def series(name: str, values: str, **labels: str) -> dict[str, str]:
    told = {"job": "pool", "instance": "a", **labels}
    return {
        "series": f"{name}{{{', '.join(f'{key}={json.dumps(value)}' for key, value in told.items())}}}",
        "values": values,
    }


def alert(at: str, name: str, **labels: str) -> dict[str, Any]:
    """That it fires then, once, with these labels; none: that it does not."""
    fires = [{"exp_labels": {"job": "pool", "instance": "a", **labels}}] if labels else []
    return {"eval_time": at, "alertname": name, "exp_alerts": fires}


@needs_promtool
def test_the_alerts_fire_when_they_should(tmp_path: Path) -> None:
    failing = "model-failed"
    given = [
        series("up", "1x10 0x20"),
        series("pool_up", "1x30"),
        series("pool_state", "1x10 0x20", state="SERVING"),
        series("pool_model_ready_slots", "2x5 0x25", model="m", version="3"),
        series("pool_model_ready_slots", "0x5 1x25", model="n", version=""),
        series("pool_slot_state", "0x5 1x25", slot="1", device="gpu:1", state="FATAL"),
        series("pool_worker_deaths_total", "0x5 2x3 4x22", slot="0", device="gpu:0", cause="SIGKILL"),
        series("pool_worker_deaths_total", "0x5 1x25", slot="1", device="gpu:1", cause="SIGKILL"),
        series("pool_jobs_total", "0+90x30", model="m", version="3", outcome="done"),
        series("pool_jobs_total", "0+10x30", model="m", version="3", outcome=failing),
        series("pool_jobs_total", "0+90x30", model="n", version="", outcome="done"),
        series("pool_jobs_total", "0+90x30", model="n", version="", outcome="invalid-input"),
        series("pool_model_oldest_job_age_seconds", "0x10 60x20", model="m", version=""),
        series("pool_queue_jobs", "1x10 95x20"),
        series("pool_queue_limit_jobs", "100x30"),
        series("pool_gateway_requests_total", "0+90x30", route="infer", code="200"),
        series("pool_gateway_requests_total", "0x10 0+90x20", route="infer", code="503"),
        series("pool_gpu_temperature_celsius", "60x10 95x20", uuid="GPU-1"),
    ]
    expected = [
        alert("9m", "PoolNotScraped"),
        alert("14m", "PoolNotScraped", severity="critical"),
        alert("9m", "PoolNotServing"),
        alert("14m", "PoolNotServing", severity="critical", state="SERVING"),
        alert("4m", "PoolModelNotServed", severity="critical", model="n"),
        alert("20m", "PoolModelNotServed", severity="critical", model="m"),
        alert("5m", "PoolSlotFatal"),
        alert("8m", "PoolSlotFatal", severity="warning", slot="1", device="gpu:1", state="FATAL"),
        alert("5m", "PoolWorkersDie"),
        alert("12m", "PoolWorkersDie", severity="warning", slot="0", device="gpu:0"),
        alert("30m", "PoolWorkersDie"),
        alert("3m", "PoolJobsFail"),
        alert("20m", "PoolJobsFail", severity="warning", model="m"),
        alert("10m", "PoolJobsWaitLong"),
        alert("14m", "PoolJobsWaitLong", severity="warning", model="m"),
        alert("10m", "PoolQueueNearlyFull"),
        alert("14m", "PoolQueueNearlyFull", severity="warning"),
        alert("10m", "PoolGatewayErrors"),
        alert("20m", "PoolGatewayErrors", severity="warning"),
        alert("10m", "PoolGpuHot"),
        alert("20m", "PoolGpuHot", severity="warning", uuid="GPU-1"),
        alert("20m", "PoolRestartNeeded"),
    ]
    rules, test = tmp_path / "alerts.yml", tmp_path / "test.yml"
    # What people are told is not what is tested here.
    rules.write_text(re.sub(r"\n        annotations:\n(?:          .*\n?)+", "\n", ALERTS))
    tests = [{"interval": "1m", "input_series": given, "alert_rule_test": expected}]
    test.write_text(json.dumps({"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": tests}))
    assert "SUCCESS" in promtool("test", "rules", str(test))


# --- a real one -------------------------------------------------------------------------------------------------------


@contextmanager
def prometheus(folder: Path, target: str, path: str = "/metrics") -> Iterator[str]:
    """One that scrapes this gateway every second, with the shipped rules; where it answers."""
    (folder / "alerts.yml").write_text(ALERTS)
    scrape = {"job_name": "pool", "metrics_path": path, "static_configs": [{"targets": [target]}]}
    settings = {"global": {"scrape_interval": "1s"}, "rule_files": ["alerts.yml"], "scrape_configs": [scrape]}
    (folder / "prometheus.yml").write_text(json.dumps(settings))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    log = (folder / "log").open("wb")
    process = subprocess.Popen(
        [
            "prometheus",
            f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stdout=log,
        stderr=log,
    )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        log.close()


def asked(where: str, query: str) -> dict[tuple[str, ...], float]:
    """The values of an expression now, by the values of their labels but job and instance."""
    try:
        answer = requests.get(f"{where}/api/v1/query", {"query": query}, timeout=20)
    except requests.ConnectionError:
        return {}  # it starts
    if answer.status_code == 503:
        return {}  # it still starts
    found = answer.json()
    result: list[Mapping[str, Any]] = found.get("data", {}).get("result", [])
    return {
        tuple(value for key, value in each["metric"].items() if key not in ("__name__", "instance", "job")): float(
            each["value"][1]
        )
        for each in result
    }


@needs_prometheus
@pytest.mark.parametrize("path", ["/metrics", "/monitoring/prometheus/metrics"])
def test_a_real_prometheus_has_what_the_pool_has(pool: PoolProcess, tmp_path: Path, path: str) -> None:
    one = np.ones((1, 1), np.float32)
    with gateway(pool.endpoint) as door, pool.client() as client, prometheus(tmp_path, door.address, path) as where:
        eventually(lambda: asked(where, "pool_up") == {(): 1.0}, 60.0)
        answered = client.metrics().status.answered
        before, failures = answered.get("done", 0), answered.get("model-failed", 0)
        for _ in range(20):
            client.run("echo", one)
        with pytest.raises(ModelFailed):
            client.run("faults", {"text": b"why"}, signature="fail")
        told = 'sum(pool_jobs_total{outcome="done"})'
        eventually(lambda: asked(where, told) == {(): before + 20.0}, 60.0)
        # A scrape that is late is none, and for a while there is no number: each is awaited.
        eventually(lambda: asked(where, "sum(pool_job_duration_seconds_count)") == {(): before + 20.0}, 60.0)
        failed = 'sum(pool_jobs_total{model="faults", outcome="model-failed"})'
        eventually(lambda: asked(where, failed) == {(): 1.0 + failures}, 60.0)
        eventually(lambda: asked(where, 'sum(pool_slot_state{state="READY"})') == {(): 2.0}, 60.0)
        scrapes = 'pool_gateway_requests_total{route="metrics", code="200"} > 2'
        eventually(lambda: bool(asked(where, scrapes)), 60.0)

        def healths() -> list[tuple[str, str]]:
            targets = requests.get(f"{where}/api/v1/targets", timeout=20).json()["data"]["activeTargets"]
            return [(target["health"], target["lastError"]) for target in targets]

        eventually(lambda: healths() == [("up", "")], 60.0, healths)
        alerts = requests.get(f"{where}/api/v1/rules", timeout=20).json()["data"]["groups"][0]["rules"]
        assert {rule["health"] for rule in alerts} <= {"ok", "unknown"}


@needs_promtool
def test_prometheus_tool_finds_nothing_wrong_with_the_names(door: Gateway) -> None:
    told = requests.get(f"{door.url}/metrics", timeout=20).text
    assert "pool_jobs_total" in told
    assert promtool("check", "metrics", told=told) == ""


def test_the_whole_gateway_serves_them_compressed_and_their_head_alone(door: Gateway) -> None:
    answer = requests.get(f"{door.url}/metrics", headers={"Accept-Encoding": "gzip"}, timeout=20)
    assert answer.headers["Content-Encoding"] == "gzip"
    assert "pool_jobs_total" in answer.text
    head = requests.head(f"{door.url}/metrics", headers={"Accept-Encoding": "identity"}, timeout=20)
    assert (head.status_code, head.content) == (200, b"")
    assert requests.post(f"{door.url}/metrics", data=b"x", timeout=20).status_code == 405


def test_each_response_is_counted_by_its_code_whoever_refuses_it(pool: PoolProcess) -> None:
    with gateway(pool.endpoint) as door:
        assert requests.get(f"{door.url}/v2", headers={"Host": "evil.example"}, timeout=20).status_code == 421
        assert requests.get(f"{door.url}/nothing", timeout=20).status_code == 404
        with socket.create_connection(("127.0.0.1", door.port)) as raw:
            raw.sendall(b"no HTTP at all\r\n\r\n")
            assert raw.recv(100).startswith(b"HTTP/1.1 400 ")
        assert requests.get(f"{door.url}/metrics", timeout=20).status_code == 200
        told = requests.get(f"{door.url}/metrics", timeout=20).text
    found = dict(re.findall(r"^pool_gateway_requests_total\{(.+)\} (.+)$", told, re.MULTILINE))
    assert found == {
        'code="400",route="other"': "1.0",
        'code="404",route="other"': "1.0",
        'code="421",route="other"': "1.0",
        'code="200",route="metrics"': "1.0",
    }
    assert re.findall(r"^pool_gateway_request_duration_seconds_count\{(.+)\} (.+)$", told, re.MULTILINE) == [
        ('route="metrics"', "1.0"),
        ('route="other"', "0.0"),
    ]


def test_the_command_prints_the_same_without_a_gateway(pool: PoolProcess, door: Gateway) -> None:
    def names(told: str) -> set[str]:
        return set(re.findall(r"^(pool_\w+)", told, re.MULTILINE))

    done = run_command(pool, "metrics")
    assert done.returncode == 0, done.stderr
    told = names(requests.get(f"{door.url}/metrics", timeout=20).text)
    assert names(done.stdout) == {name for name in told if not name.startswith("pool_gateway_request")}
    assert run_command(None, "metrics", "--alerts").stdout == ALERTS
    assert json.loads(run_command(None, "metrics", "--dashboard").stdout) == BOARD
    gone = run_command(None, "metrics", "--endpoint", "ipc:///nowhere")
    assert gone.returncode == 1
    assert "no pool answers" in gone.stderr


def test_gateways_of_one_pool_tell_the_same(pool: PoolProcess) -> None:
    """All but what goes on by itself: the time, clients that come, and requests of gateways that are two."""
    moves = ("pool_uptime_seconds", "pool_clients", "pool_gateway", "pool_slot_memory_bytes", "pool_shared_memory")
    with gateway(pool.endpoint) as one, gateway(pool.endpoint) as other, pool.client() as client:
        client.run("echo", np.ones((1, 1), np.float32))
        found = [
            [
                line
                for line in requests.get(f"{each.url}/metrics", timeout=20).text.splitlines()
                if not line.startswith(moves)
            ]
            for each in (one, other)
        ]
    assert found[0] == found[1]
    assert len(found[0]) > 200
