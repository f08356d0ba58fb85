"""What the pool tells becomes the metrics that the reference names, in both formats, and one question serves many."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain_text

from gateway.fakes import OnePool
from pool import AsyncClient
from pool.errors import PoolUnreachable
from pool.gateway import catalogue
from pool.gateway.catalogue import Catalogues
from pool.gateway.http import Request
from pool.gateway.metrics.collector import OUTCOMES, PoolCollector, text_of
from pool.gateway.metrics.exposition import Exposition
from pool.gateway.metrics.families import FAMILIES
from pool.gateway.metrics.request_counts import RequestCounts
from pool.wire.faults import Fault
from pool.wire.records import Gateway, GatewayProcess, Histogram, Metrics, ModelCounts, VersionCounts
from simulation.driver import Driver
from support import told_pool

Found = Mapping[tuple[str, tuple[tuple[str, str], ...]], float]


def numbers(text: str) -> Found:
    """By name and labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in plain_text(text)
        for sample in family.samples
    }


def number(found: Found, name: str, **labels: str) -> float:
    return found[name, tuple(sorted(labels.items()))]


def worked() -> Metrics:
    """Of a pool with two slots and a model each, one of which has versions."""
    driver = Driver(["m", "n"], ["m"], versions={"m": 4}, max_jobs=3).serve()
    for _ in range(5):
        driver.submit("m")
        driver.now += 0.01
        driver.done(driver.running()[0])
    driver.submit("n")
    driver.spoil(driver.running()[0], Fault.MODEL_FAILED)
    driver.submit("nobody_has_it")
    for _ in range(4):
        driver.submit("n")
    driver.now += 7.0
    driver.die(1)
    told = told_pool.metrics(driver)
    slots = tuple(replace(slot, memory_bytes=1 << 30) for slot in told.status.slots)
    process = GatewayProcess(0, 77, 2, "SERVING", restarts=1, reason="")
    return replace(told, status=replace(told.status, slots=slots, gateway=Gateway("http://127.0.0.1:1", (process,))))


def test_all_metrics_of_the_reference_are_told_with_their_labels() -> None:
    counts = RequestCounts()
    counts.count("infer", 200, 0.003)
    families = {family.name: family for family in PoolCollector({"": worked()}, counts.routes()).collect()}
    assert list(families) == [name.removesuffix("_total") for name in FAMILIES]
    for name, family in FAMILIES.items():
        found = families[name.removesuffix("_total")]
        assert found.type == family.kind
        assert found.documentation == family.text
        assert found.samples, f"nothing is told of {name}"
        for sample in found.samples:
            assert sample.labels.keys() - {"le"} == set(family.labels), sample


def test_the_numbers_are_those_of_the_pool() -> None:
    told = worked()
    found = numbers(text_of(told))
    assert number(found, "pool_up") == 1
    assert number(found, "pool_jobs_total", model="m", version="4", outcome="done") == 5
    assert number(found, "pool_job_duration_seconds_count", model="m", version="4") == 5
    assert number(found, "pool_job_duration_seconds_sum", model="m", version="4") == pytest.approx(0.05)
    assert number(found, "pool_job_duration_seconds_bucket", model="m", version="4", le="0.008192") == 0
    assert number(found, "pool_job_duration_seconds_bucket", model="m", version="4", le="0.016384") == 5
    assert number(found, "pool_jobs_total", model="n", version="", outcome="model-failed") == 1
    assert number(found, "pool_jobs_total", model="n", version="", outcome="overloaded") == 1
    assert number(found, "pool_jobs_total", model="", version="", outcome="model-not-found") == 1
    assert number(found, "pool_model_waiting_jobs", model="n", version="") == 2
    assert number(found, "pool_model_running_jobs", model="n", version="") == 1
    assert number(found, "pool_model_oldest_job_age_seconds", model="n", version="") == 7
    assert number(found, "pool_model_oldest_job_age_seconds", model="m", version="") == 0
    assert number(found, "pool_model_ready_slots", model="m", version="") == 1
    assert number(found, "pool_slot_state", slot="1", device="gpu:1", state="BACKOFF") == 1
    assert number(found, "pool_slot_state", slot="1", device="gpu:1", state="READY") == 0
    assert number(found, "pool_worker_deaths_total", slot="1", device="gpu:1", cause="OTHER") == 1
    assert number(found, "pool_gpu_temperature_celsius", uuid=told_pool.UUID) == 61
    assert number(found, "pool_gpu_utilization_ratio", uuid=told_pool.UUID) == 0.87
    assert number(found, "pool_shared_memory_limit_bytes") == 1 << 30
    jobs = {labels: value for (name, labels), value in found.items() if name == "pool_jobs_total"}
    assert sum(jobs.values()) == sum(told.status.answered.values())


def test_what_may_happen_is_told_before_it_does() -> None:
    """A rate over a counter that was missing before its first job would miss that job."""
    found = numbers(text_of(told_pool.metrics(Driver(["m"], versions={"m": 4}).serve())))
    for outcome in OUTCOMES:
        assert number(found, "pool_jobs_total", model="m", version="4", outcome=outcome) == 0
    assert number(found, "pool_job_run_seconds_count", model="m", version="4") == 0
    assert number(found, "pool_worker_deaths_total", slot="0", device="gpu:0", cause="SIGKILL") == 0


def test_every_outcome_that_a_job_can_have_is_known_before() -> None:
    others = {Fault.POOL_FAILED, Fault.NOT_ALLOWED, Fault.NOT_UNDERSTOOD, Fault.INVALID_STATE, Fault.INVALID_CONFIG}
    assert set(OUTCOMES) == {"done", "cancelled"} | {fault.value for fault in set(Fault) - others}


def test_two_names_of_one_version_are_one_series() -> None:
    """A model that was served with its newest version, and then with several beside each other."""
    told = worked()
    counts = replace(told.models[0].versions[0], jobs={"done": 3})
    entry = ModelCounts("m@4", "m", 4, (counts,))
    found = numbers(text_of(replace(told, models=(*told.models, entry))))
    assert number(found, "pool_jobs_total", model="m", version="4", outcome="done") == 8
    assert number(found, "pool_job_duration_seconds_count", model="m", version="4") == 10


EMPTY = Histogram((), 0.0)
COUNTS = st.lists(st.integers(0, 1 << 40), max_size=64)


@settings(max_examples=60, deadline=None)
@given(COUNTS, COUNTS, st.text(max_size=8))
def test_whatever_is_counted_both_formats_have_all_of_it(times: list[int], rows: list[int], name: str) -> None:
    told = worked()
    histogram = Histogram(tuple(times), 1.5)
    counts = VersionCounts(7, {"done": sum(times)}, histogram, EMPTY, EMPTY, EMPTY, Histogram(tuple(rows), 3.0))
    told = replace(told, models=(ModelCounts(name, name, None, (counts,)),))
    for encoded, parsed in ((text_of(told), plain_text), (_openmetrics(told), openmetrics)):
        samples = [sample for family in parsed(encoded) for sample in family.samples]
        for family, total in (("pool_job_duration_seconds", sum(times)), ("pool_batch_rows", sum(rows))):
            of_it = [each for each in samples if each.labels.get("version") == "7" and each.labels["model"] == name]
            buckets = [each for each in of_it if each.name == f"{family}_bucket"]
            ends = [float(each.labels["le"]) for each in buckets]
            assert ends == sorted(ends)
            assert ends[-1] == math.inf
            values = [each.value for each in buckets]
            assert values == sorted(values)
            assert values[-1] == total
            assert [each.value for each in of_it if each.name == f"{family}_count"] == [total]


def _openmetrics(told: Metrics) -> str:
    encode, _ = choose_encoder("application/openmetrics-text; version=1.0.0")
    return encode(PoolCollector({"": told})).decode()


# --- who asks ---------------------------------------------------------------------------------------------------------


class Asked(OnePool, AsyncClient):
    """Asks nobody."""

    def __init__(self, answer: Callable[[], Awaitable[Metrics]]) -> None:
        super().__init__("ipc:///nowhere")
        self.questions = 0
        self._answer = answer

    async def metrics(self) -> Metrics:
        self.questions += 1
        return await self._answer()


async def at_once() -> Metrics:
    return worked()


async def scraped(shown: Exposition, client: Asked, **headers: str) -> tuple[int, str, str]:
    found = await shown.answer(Request("GET", "/metrics", headers=headers), client)
    return found.status, dict(found.headers)["Content-Type"], b"".join(map(bytes, found.body)).decode()


def test_many_scrapes_are_one_question(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        shown, client = Exposition(RequestCounts(), Catalogues()), Asked(at_once)
        found = await asyncio.gather(*[scraped(shown, client) for _ in range(8)])
        assert len(set(found)) == 1
        assert found[0][0] == 200
        assert client.questions == 1
        monkeypatch.setattr(catalogue, "FRESH_S", 0.0)  # a while later
        await scraped(shown, client)
        assert client.questions == 2

    asyncio.run(main())


def test_a_pool_that_is_gone_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    async def gone() -> Metrics:
        raise PoolUnreachable("no pool answers")

    async def silent() -> Metrics:
        await asyncio.sleep(60.0)
        raise AssertionError

    monkeypatch.setattr(catalogue, "WAIT_S", 0.05)
    monkeypatch.setattr(catalogue, "FRESH_S", math.inf)  # else three scrapes may take longer than an answer is kept

    async def main(answer: Any) -> None:
        counts = RequestCounts()
        counts.count("infer", 503, 0.1)
        shown, client = Exposition(counts, Catalogues()), Asked(answer)
        for _ in range(3):
            status, _, text = await scraped(shown, client)
            assert status == 200
            found = numbers(text)
            assert number(found, "pool_up") == 0
            assert number(found, "pool_gateway_requests_total", route="infer", code="503") == 1
            assert not [name for name, _ in found if name.startswith("pool_slot")]
        assert client.questions == 1, "who has not answered is not asked again"

    for answer in (gone, silent):
        asyncio.run(main(answer))


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", "text/plain; version=0.0.4"),
        ("*/*", "text/plain; version=0.0.4"),
        ("text/html", "text/plain; version=0.0.4"),
        ("application/openmetrics-text;version=1.0.0,text/plain;q=0.5", "application/openmetrics-text; version=1.0.0"),
        ("application/openmetrics-text;version=banana", "text/plain; version=0.0.4"),
        ("text/plain;version=", "text/plain; version=0.0.4"),
        (";;;,=,,;version=1", "text/plain; version=0.0.4"),
    ],
)
def test_the_format_is_the_one_that_is_accepted(accept: str, content_type: str) -> None:
    status, found, text = asyncio.run(scraped(Exposition(RequestCounts(), Catalogues()), Asked(at_once), accept=accept))
    assert status == 200
    assert found.startswith(content_type)
    assert text.endswith("# EOF\n") is content_type.startswith("application/openmetrics-text")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/monitoring/prometheus/metrics", 200),
        ("HEAD", "/metrics", 200),
        ("POST", "/metrics", 405),
        ("GET", "/metrics/else", 404),
        ("GET", "/monitoring", 404),
    ],
)
def test_metrics_are_at_two_paths_and_can_only_be_read(method: str, path: str, status: int) -> None:
    shown = Exposition(RequestCounts(), Catalogues())
    found = asyncio.run(shown.answer(Request(method, path), Asked(at_once)))
    assert found.status == status
