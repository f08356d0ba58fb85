"""What a gateway tells of several pools, made up: put together, told apart, and some that give no answer."""

import asyncio
import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.fakes import Echo, result_of
from gateway.told import model, signature, slot
from pool import JobResult
from pool.errors import Incompatible, InvalidConfig, NotAllowed, PoolError, PoolUnreachable, WorkerLost
from pool.gateway.app import answer_of
from pool.gateway.catalogue import Catalogues
from pool.gateway.http import Request
from pool.gateway.inference import Inference
from pool.gateway.metrics import Exposition, RequestCounts, text_of
from pool.gateway.serving import Serving
from pool.wire.records import Model, Slot
from simulation.driver import Driver
from support import told_pool

FLOATS = {"serving_default": signature({"x": "float32"})}
INTS = {"serving_default": signature({"x": "int32"})}
METRICS = told_pool.metrics(Driver(["m", "n"], ["m"], versions={"m": 3}).serve())
AWAY = PoolUnreachable("no pool answers at b")


class Pools(Echo):
    """`each`: what each pool tells of its models, and of its slots; or why it tells nothing."""

    def __init__(self, **each: Sequence[Model] | PoolError) -> None:
        super().__init__()
        self.each = each
        self.slots: dict[str, Sequence[Slot]] = {}
        self.changes: list[tuple[str, str, str]] = []
        self.refuses: dict[str, PoolError] = {}

    async def _of_each(self, what: str, _within_s: float) -> dict[str, Any]:
        def told(pool: str, models: Sequence[Model]) -> Any:
            status = replace(METRICS.status, slots=tuple(self.slots.get(pool, ())) or METRICS.status.slots)
            return {"models": models, "metrics": METRICS, "status": status}[what]

        return {
            pool: models if isinstance(models, PoolError) else told(pool, models) for pool, models in self.each.items()
        }

    async def run(self, model: str, inputs: Any, **options: Any) -> JobResult:  # noqa: ARG002
        return result_of({"y": np.array([2.0], np.float32)})

    @property
    def pools(self) -> tuple[Any, ...]:
        return tuple(One(self, pool) for pool in self.each)


class One:
    """A client of one of them."""

    def __init__(self, all_pools: Pools, pool: str) -> None:
        self._all = all_pools
        self.endpoint = pool

    async def models(self) -> Sequence[Model]:
        models = self._all.each[self.endpoint]
        assert not isinstance(models, PoolError)
        return models

    async def load(self, name: str) -> None:
        self._change("load", name)

    async def unload(self, name: str) -> None:
        self._change("unload", name)

    def _change(self, what: str, name: str) -> None:
        if self.endpoint in self._all.refuses:
            raise self._all.refuses[self.endpoint]
        self._all.changes.append((what, self.endpoint, name))


class Door:
    """A gateway of them; each answer is anew."""

    def __init__(self, client: Pools, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("pool.gateway.catalogue.FRESH_S", 0.0)
        monkeypatch.setattr("pool.gateway.serving.known._FRESH_S", 0.0)
        self.client = client
        catalogues = Catalogues()
        counts = RequestCounts()
        counts.count("infer", 200, 0.01)
        shown = Exposition(counts, catalogues)
        self._protocols = {
            "v1": Serving(catalogues),
            "v2": Inference(catalogues, repository=True),
            "metrics": shown,
        }

    def ask(self, path: str, verb: str = "GET", body: Any = None) -> tuple[int, Any]:
        data = b"" if body is None else json.dumps(body).encode()
        request = Request(verb, path, body=np.frombuffer(data, np.uint8))
        protocol = self._protocols[path.split("/")[1]]
        response = asyncio.run(answer_of(protocol, request, self.client))  # type: ignore[arg-type]
        said = b"".join(map(bytes, response.body))
        return response.status, said.decode() if path == "/metrics" else json.loads(said or b"null")

    def states(self, path: str) -> dict[str, tuple[str, str]]:
        status, said = self.ask(path)
        assert status == 200, said
        return {
            each["version"]: (each["state"], each["status"]["error_message"]) for each in said["model_version_status"]
        }

    def index(self) -> dict[tuple[str, str], str]:
        status, said = self.ask("/v2/repository/index", "POST")
        assert status == 200, said
        found = {(each["name"], each["version"]): each["state"] for each in said}
        assert len(found) == len(said), "each version once"
        return found


# --- models -----------------------------------------------------------------------------------------------------------


def test_a_model_is_ready_where_one_pool_serves_it_and_told_as_that_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    starts, serves = model({}, "m", ready=()), model(FLOATS, "m")
    for each in ({"a": [starts], "b": [serves]}, {"a": [serves], "b": [starts]}):
        door = Door(Pools(**each), monkeypatch)
        assert door.ask("/v2/models/m/ready")[0] == 200
        assert [each["name"] for each in door.ask("/v2/models/m")[1]["inputs"]] == ["x"]
        assert door.index() == {("m", "1"): "READY"}
        assert door.states("/v1/models/m") == {"1": ("AVAILABLE", "")}


@pytest.mark.parametrize("turned", [False, True])
def test_who_serves_a_model_describes_it(monkeypatch: pytest.MonkeyPatch, turned: bool) -> None:
    each = {"a": [model(INTS, "m", ready=()), model({}, "n", version=3)], "b": [model(FLOATS, "m")]}
    each["b"].append(model({}, "n", versions=(3,), ready=()))
    door = Door(Pools(**dict(reversed(each.items())) if turned else each), monkeypatch)
    assert door.ask("/v2/models/m")[1]["inputs"][0]["datatype"] == "FP32"
    assert door.index() == {("m", "1"): "READY", ("n", "3"): "READY"}


def test_models_of_only_one_pool_are_there_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    door = Door(Pools(a=[model(FLOATS, "m")], b=[model(INTS, "n")]), monkeypatch)
    assert door.index() == {("m", "1"): "READY", ("n", "1"): "READY"}
    assert door.ask("/v2/models/n")[1]["inputs"][0]["datatype"] == "INT32"
    assert door.ask("/v1/models/n/metadata")[0] == 200
    assert door.ask("/v2/models/x")[0] == 404
    assert door.ask("/v1/models/x")[0] == 404
    assert door.ask("/v1/models/n:predict", "POST", {"instances": [1]}) == (200, {"predictions": [2.0]})


@pytest.mark.parametrize("turned", [False, True])
def test_versions_that_differ_are_put_together(monkeypatch: pytest.MonkeyPatch, turned: bool) -> None:
    """One pool has one version alone, another has two beside each other, of which a label names one."""
    alone = [model(FLOATS, "m", versions=(3,))]
    beside = [
        model(INTS, "m", version=2, default=False, labels=("old",)),
        model(FLOATS, "m", version=3, ready=()),
    ]
    each = {"b": beside, "a": alone} if turned else {"a": alone, "b": beside}
    door = Door(Pools(**each), monkeypatch)
    assert door.ask("/v2/models/m")[1]["versions"] == ["2", "3"]
    assert door.index() == {("m", "2"): "READY", ("m", "3"): "READY"}
    assert door.states("/v1/models/m") == {"3": ("AVAILABLE", ""), "2": ("AVAILABLE", "")}
    assert door.states("/v1/models/m/labels/old") == {"2": ("AVAILABLE", "")}
    for path in ("", "/versions/2", "/versions/3", "/versions/old"):
        assert door.ask(f"/v2/models/m{path}/ready")[0] == 200, path
        assert door.ask(f"/v2/models/m{path}/config")[0] == 200, path
        assert door.ask(f"/v2/models/m{path}/stats")[0] == 200, path
    assert door.ask("/v2/models/m/versions/2")[1]["inputs"][0]["datatype"] == "INT32"
    _, told = door.ask("/v1/models/m/versions/2/metadata")
    signatures = told["metadata"]["signature_def"]["signature_def"]
    assert signatures["serving_default"]["inputs"]["x"]["dtype"] == "DT_INT32"
    assert door.ask("/v2/models/m/versions/4")[0] == 404
    assert [each["version"] for each in door.ask("/v2/models/stats")[1]["model_stats"]].count("3") == 1


def test_two_versions_of_one_model_that_two_pools_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rolling update over the pools: each has one version alone."""
    door = Door(Pools(a=[model(FLOATS, "m", versions=(4,))], b=[model(FLOATS, "m", versions=(3,))]), monkeypatch)
    assert door.ask("/v2/models/m")[1]["versions"] == ["3", "4"]
    assert door.states("/v1/models/m") == {"4": ("AVAILABLE", ""), "3": ("AVAILABLE", "")}
    assert door.ask("/v2/models/m/versions/3/ready")[0] == 200


def test_why_a_model_is_not_served_is_told_of_the_pool_that_is_nearest_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = model({}, "m", ready=())
    client = Pools(a=[waits], b=[waits])
    client.slots = {"a": [slot(0, "FATAL", "no file")], "b": [slot(0, "LOADING")]}
    door = Door(client, monkeypatch)
    assert door.states("/v1/models/m") == {"1": ("LOADING", "")}
    client.slots["b"] = [slot(0, "FATAL", "no memory")]
    assert door.states("/v1/models/m") == {"1": ("END", "slot 0 is FATAL: no file")}


# --- pools that give no answer ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [AWAY, Incompatible("of another release"), NotAllowed("not you")], ids=str)
def test_a_pool_that_gives_no_answer_is_left_out(monkeypatch: pytest.MonkeyPatch, error: PoolError) -> None:
    client = Pools(a=[model(FLOATS, "m")], b=error)
    client.slots["a"] = [slot(0, "READY")]
    door = Door(client, monkeypatch)
    assert door.ask("/v2/health/live")[0] == 200
    assert door.ask("/v2/health/ready")[0] == 200
    assert door.ask("/v2/models/m/ready")[0] == 200
    assert door.index() == {("m", "1"): "READY"}
    assert door.ask("/v2/models/stats")[0] == 200
    client.slots["a"] = [slot(0, "LOADING")]
    status, said = door.ask("/v2/health/ready")
    assert (status, said["error"].startswith("a: the pool does not serve")) == (503, True)


def test_a_model_that_a_pool_may_have_that_never_answered_is_not_denied(monkeypatch: pytest.MonkeyPatch) -> None:
    door = Door(Pools(a=[model(FLOATS, "m")], b=AWAY), monkeypatch)
    for path in ("/v2/models/n", "/v2/models/n/ready", "/v1/models/n", "/v1/models/n/metadata"):
        status, said = door.ask(path)
        assert (status, "b has not answered yet" in said["error"]) == (503, True), said
    assert door.ask("/v1/models/n:predict", "POST", {"instances": [1]})[0] == 503


def test_what_a_pool_had_is_known_while_it_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Pools(a=[model(FLOATS, "m")], b=[model(FLOATS, "n")])
    door = Door(client, monkeypatch)
    assert door.index() == {("m", "1"): "READY", ("n", "1"): "READY"}
    client.each["b"] = AWAY
    assert door.index()["n", "1"] == "UNAVAILABLE"
    assert door.ask("/v2/models/n")[0] == 200
    assert door.ask("/v2/models/n/ready")[0] == 503
    assert door.states("/v1/models/n") == {"1": ("START", "no pool answers at b")}
    assert door.ask("/v2/models/x")[0] == 404, "b has told that it has no such model"
    assert door.ask("/v1/models/n:predict", "POST", {"instances": [1]})[0] == 200, "the client waits for b"
    del client.each["b"]
    assert ("n", "1") not in door.index(), "a pool that has left the cluster is forgotten"


def test_without_any_answer_all_errors_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    door = Door(Pools(a=PoolUnreachable("no pool answers at a"), b=AWAY), monkeypatch)
    for path in ("/v2/health/ready", "/v2/models/m", "/v2/models/stats", "/v1/models/m"):
        assert door.ask(path) == (503, {"error": "no pool answers at a; no pool answers at b"}), path
    assert door.ask("/v2/health/live")[0] == 200


# --- metrics ----------------------------------------------------------------------------------------------------------


def samples(text: str) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for family in text_string_to_metric_families(text):
        assert family.name not in found, "a family is told once"
        found[family.name] = family.samples
        keys = [(each.name, tuple(sorted(each.labels.items()))) for each in family.samples]
        assert len(keys) == len(set(keys)), family.name
    return found


def test_metrics_of_several_pools_have_a_label_and_those_of_requests_none(monkeypatch: pytest.MonkeyPatch) -> None:
    door = Door(Pools(a=[], b=[], c=AWAY), monkeypatch)
    status, text = door.ask("/metrics")
    assert status == 200
    found = samples(text)
    assert {each.labels["pool"]: each.value for each in found["pool_up"]} == {"a": 1, "b": 1, "c": 0}
    for name, of in found.items():
        labelled = {each.labels.get("pool") for each in of}
        if name.startswith("pool_gateway_request"):
            assert labelled == {None}, name
        elif name != "pool_up":
            assert labelled in ({"a", "b"}, set()), name


def test_metrics_without_any_answer_still_name_the_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    status, text = Door(Pools(a=AWAY, b=AWAY), monkeypatch).ask("/metrics")
    assert status == 200
    assert {each.labels["pool"]: each.value for each in samples(text)["pool_up"]} == {"a": 0, "b": 0}


def test_of_one_pool_nothing_has_the_label() -> None:
    assert 'pool="' not in text_of(METRICS)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="there is no promtool")
def test_promtool_takes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    _, text = Door(Pools(a=[], b=[], c=AWAY), monkeypatch).ask("/metrics")
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_each_trouble_is_logged_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    client = Pools(a=[], b=AWAY)
    door = Door(client, monkeypatch)
    for _ in range(3):
        door.ask("/metrics")
    assert caplog.text.count("no metrics of pool b: no pool answers at b") == 1
    client.each["b"] = []
    door.ask("/metrics")
    client.each["b"] = AWAY
    door.ask("/metrics")
    assert caplog.text.count("no metrics of pool b") == 2


# --- models that come and go ------------------------------------------------------------------------------------------

LOAD, UNLOAD = "/v2/repository/models/m/load", "/v2/repository/models/m/unload"


def test_a_model_is_loaded_and_unloaded_in_all_pools_that_can(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Pools(a=[model(FLOATS, "m")], b=[model(FLOATS, "m", version=1)], c=[model(FLOATS, "n")])
    door = Door(client, monkeypatch)
    assert door.ask(UNLOAD, "POST")[0] == 200
    assert client.changes == [("unload", "a", "m"), ("unload", "b", "m")]
    client.changes.clear()
    client.refuses["c"] = InvalidConfig("c.toml has no model 'm'")
    assert door.ask(LOAD, "POST")[0] == 200
    assert client.changes == [("load", "a", "m"), ("load", "b", "m")]


def test_what_no_pool_can_load_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Pools(a=[], b=[])
    client.refuses = {pool: InvalidConfig(f"{pool}.toml has no model 'm'") for pool in "ab"}
    door = Door(client, monkeypatch)
    assert door.ask(LOAD, "POST") == (400, {"error": "pool a: a.toml has no model 'm'"})
    assert door.ask(UNLOAD, "POST")[0] == 404


@pytest.mark.parametrize(
    ("path", "error", "status"),
    [
        (LOAD, WorkerLost("it did not start"), 503),
        (LOAD, NotAllowed("you may not"), 403),
        (UNLOAD, InvalidConfig("it is the last one"), 400),
    ],
)
def test_a_pool_that_fails_is_named(monkeypatch: pytest.MonkeyPatch, path: str, error: PoolError, status: int) -> None:
    client = Pools(a=[model(FLOATS, "m")], b=[model(FLOATS, "m")])
    client.refuses["b"] = error
    assert Door(client, monkeypatch).ask(path, "POST") == (status, {"error": f"pool b: {error}"})
    assert len(client.changes) == 1


@pytest.mark.parametrize("path", [LOAD, UNLOAD])
def test_nothing_changes_while_a_pool_gives_no_answer(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    client = Pools(a=[model(FLOATS, "m")], b=AWAY)
    status, said = Door(client, monkeypatch).ask(path, "POST")
    assert status == 503
    assert said["error"].startswith("no pool answers at b; a model is loaded or unloaded in all pools")
    assert client.changes == []
