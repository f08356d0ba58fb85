"""What is kept of the pool's answers, and what a job costs in questions: against a client that is made up."""

import asyncio
import json
import math
from collections.abc import Callable, Coroutine
from typing import Any, cast

import numpy as np
import pytest

from gateway.fakes import OnePool
from gateway.told import model, signature
from pool import AsyncClient, errors
from pool.gateway.app import answer_of
from pool.gateway.http import Request, Response
from pool.gateway.serving import Serving, known
from pool.wire.records import Model

FLOATS = {"serving_default": signature({"x": "float32"})}
DOUBLES = {"serving_default": signature({"x": "float64"})}
RENAMED = {"serving_default": signature({"z": "float32"})}


class MadeUp(OnePool):
    """`log`: what was asked of it, in order. `outcomes`: of the jobs to come."""

    def __init__(self, *told: Model) -> None:
        self.told = told
        self.log: list[str] = []
        self.inputs: list[dict[str, Any]] = []
        self.outcomes: list[Exception] = []

    async def models(self) -> tuple[Model, ...]:
        self.log.append("models")
        told = self.told
        await asyncio.sleep(0)
        return told

    async def run(self, _name: str, inputs: dict[str, Any], **_: Any) -> dict[str, Any]:
        self.log.append("run")
        self.inputs.append(inputs)
        await asyncio.sleep(0)
        if self.outcomes:
            raise self.outcomes.pop(0)
        return {"y": np.array([1.5, 2.5], np.float32)}


Ask = Callable[..., Coroutine[Any, Any, tuple[int, Any]]]


def talk(client: Any, steps: Callable[[Ask], Coroutine[Any, Any, None]]) -> None:
    """`steps` is given what sends a request: its JSON body, then verb and path; it returns status and JSON."""
    serving = Serving()

    async def ask(body: Any = None, path: str = "/v1/models/m:predict", verb: str = "POST") -> tuple[int, Any]:
        data = b"" if body is None else json.dumps(body).encode()
        request = Request(verb, path, body=np.frombuffer(data, np.uint8))
        answer = await answer_of(serving, request, cast(AsyncClient, client))
        return answer.status, said(answer)

    asyncio.run(asyncio.wait_for(steps(ask), 20))


def said(answer: Response) -> Any:
    assert dict(answer.headers)["Content-Type"] == "application/json"
    return json.loads(b"".join(answer.body))


BODY = {"instances": [1.0, 2.0]}
RIGHT = (200, {"predictions": [1.5, 2.5]})


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is known stays new: on a busy machine, the second for which it does may end between two steps of a test."""
    monkeypatch.setattr(known, "_FRESH_S", math.inf)


@pytest.fixture
def _stale(_fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is known is old as soon as it is known."""
    monkeypatch.setattr(known, "_FRESH_S", 0.0)


def test_jobs_share_a_question() -> None:
    client = MadeUp(model(FLOATS))

    async def steps(ask: Ask) -> None:
        assert await asyncio.gather(*(ask(BODY) for _ in range(5))) == [RIGHT] * 5
        assert await ask(BODY) == RIGHT

    talk(client, steps)
    assert client.log.count("models") == 1
    assert client.log.count("run") == 6


@pytest.mark.usefixtures("_stale")
def test_a_job_waits_for_no_question_once_the_model_is_known() -> None:
    client = MadeUp(model(FLOATS))

    async def steps(ask: Ask) -> None:
        for _ in range(3):
            assert await ask(BODY) == RIGHT
            await asyncio.sleep(0.01)

    talk(client, steps)
    assert client.log == ["models", *["run", "models"] * 3], "each question came behind a job"


@pytest.mark.parametrize("now", [DOUBLES, RENAMED])
def test_a_job_that_was_made_of_what_is_not_true_any_more_is_made_again(now: Any) -> None:
    client = MadeUp(model(FLOATS))

    async def steps(ask: Ask) -> None:
        assert await ask(BODY) == RIGHT
        client.told = (model(now),)
        client.outcomes = [errors.InvalidInput("no such input")]
        assert await ask(BODY) == RIGHT

    talk(client, steps)
    assert client.log == ["models", "run", "run", "models", "run"]
    ((name, last),) = client.inputs[-1].items()
    spec = now["serving_default"].inputs[name]
    assert last.dtype == np.dtype(spec.dtype)


def test_a_refusal_by_the_worker_that_stands_is_told() -> None:
    client = MadeUp(model(FLOATS))

    async def steps(ask: Ask) -> None:
        client.outcomes = [errors.InvalidInput("expected [?, 4]")]
        assert await ask(BODY) == (400, {"error": "expected [?, 4]"})

    talk(client, steps)
    assert client.log == ["models", "run", "models"]


def test_a_wrong_request_asks_the_pool_nothing() -> None:
    client = MadeUp(model(FLOATS))

    async def steps(ask: Ask) -> None:
        assert await ask(BODY) == RIGHT
        wrong: tuple[Any, ...] = ({"instances": ["a"]}, {"signature_name": "other", "instances": [1]}, {}, [])
        for body in wrong:
            assert (await ask(body))[0] == 400

    talk(client, steps)
    assert client.log == ["models", "run"]


@pytest.mark.usefixtures("_stale")
def test_a_wrong_request_may_be_right_for_the_model_that_there_is_now() -> None:
    client = MadeUp(model(FLOATS))

    async def steps(ask: Ask) -> None:
        assert await ask(BODY) == RIGHT
        client.told = (model(RENAMED),)
        assert await ask({"inputs": {"z": [1.0, 2.0]}}) == (200, {"outputs": [1.5, 2.5]})
        assert (await ask({"inputs": {"x": [1.0, 2.0]}}))[0] == 400

    talk(client, steps)
    assert client.log.count("run") == 2


@pytest.mark.usefixtures("_stale")
def test_a_model_whose_worker_is_being_replaced_is_called_as_before() -> None:
    client = MadeUp(model(FLOATS))

    async def steps(ask: Ask) -> None:
        assert await ask(BODY) == RIGHT
        client.told = (model({}, ready=()),)
        for _ in range(2):
            await asyncio.sleep(0.01)
            assert await ask(BODY) == RIGHT

    talk(client, steps)


def test_a_model_that_nobody_has_loaded_yet_is_worth_another_try() -> None:
    client = MadeUp(model({}, ready=()))
    serving = Serving()

    async def steps() -> Response:
        request = Request("POST", "/v1/models/m:predict", body=np.frombuffer(b'{"instances":[1]}', np.uint8))
        return await answer_of(serving, request, cast(AsyncClient, client))

    answer = asyncio.run(steps())
    assert answer.status == 503
    assert ("Retry-After", "1") in answer.headers
    assert "is being loaded" in said(answer)["error"]
    assert "run" not in client.log


def test_a_model_that_is_not_there_is_not_found() -> None:
    client = MadeUp(model(FLOATS), model(FLOATS, version=3, name="v"))

    async def steps(ask: Ask) -> None:
        assert await ask(BODY, "/v1/models/other:predict") == (404, {"error": "no model 'other'; there are: m, v@3"})
        for path in ("v/versions/4:predict", "v/labels/stable:predict"):
            assert (await ask(BODY, f"/v1/models/{path}"))[0] == 404
        for path in ("other", "v/versions/4", "v/labels/stable", "m/versions/2", "m/versions/2/metadata"):
            assert (await ask(None, f"/v1/models/{path}", "GET"))[0] == 404
        assert await ask(BODY, "/v1/models/v/versions/3:predict") == RIGHT
        assert (await ask(None, "/v1/models/v/versions/3/metadata", "GET"))[0] == 200

    talk(client, steps)
    assert client.log == ["models", "run"]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.ModelFailed("an op"), 500),
        (errors.OutOfMemory("too large"), 500),
        (errors.DeadlineExceeded("late"), 504),
        (errors.Overloaded("full", 0.2), 503),
        (errors.WorkerLost("died"), 503),
        (errors.Quarantined("kills"), 500),
        (errors.PoolUnreachable("away"), 503),
        (errors.NotAllowed("not you"), 403),
    ],
)
def test_an_error_of_the_job_has_its_status_and_the_text_of_the_pool(error: errors.PoolError, status: int) -> None:
    client = MadeUp(model(FLOATS))

    async def steps(ask: Ask) -> None:
        client.outcomes = [error]
        assert await ask(BODY) == (status, {"error": str(error)})

    talk(client, steps)
    assert client.log == ["models", "run"]


def test_a_mistake_of_the_gateway_is_logged_and_tells_nothing(caplog: pytest.LogCaptureFixture) -> None:
    client = MadeUp(model(FLOATS))

    async def steps(ask: Ask) -> None:
        client.outcomes = [ZeroDivisionError("a secret")]
        assert await ask(BODY) == (500, {"error": "the gateway failed at this request"})

    talk(client, steps)
    assert "a secret" in caplog.text


def test_who_hangs_up_cancels_his_job_and_no_question_of_others() -> None:
    class Slow(MadeUp):
        cancelled = 0

        async def models(self) -> tuple[Model, ...]:
            asked.set()
            await go_on.wait()
            return await super().models()

        async def run(self, *_: Any, **__: Any) -> dict[str, Any]:
            runs.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
            raise AssertionError

    client = Slow(model(FLOATS))
    asked, go_on, runs = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def steps(ask: Ask) -> None:
        first, second = asyncio.ensure_future(ask(BODY)), asyncio.ensure_future(ask(BODY))
        await asked.wait()
        first.cancel()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await first
        await runs.wait()
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second

    talk(client, steps)
    assert client.log == ["models"], "the question of the first was the second's too"
    assert client.cancelled == 1


def test_a_question_that_fails_fails_those_who_wait_for_it_alone() -> None:
    class Away(MadeUp):
        is_away = True

        async def models(self) -> tuple[Model, ...]:
            if self.is_away:
                raise errors.PoolUnreachable("no pool answers")
            return await super().models()

    client = Away(model(FLOATS))

    async def steps(ask: Ask) -> None:
        assert await ask(BODY) == (503, {"error": "no pool answers"})
        client.is_away = False
        assert await ask(BODY) == RIGHT

    talk(client, steps)


def test_large_bodies_are_read_like_small_ones() -> None:
    client = MadeUp(model(FLOATS))

    async def steps(ask: Ask) -> None:
        assert await ask({"instances": [1.5] * 400_000}) == RIGHT
        assert (await ask({"instances": [[1.5] * 400_000, 1]}))[0] == 400

    talk(client, steps)
    assert client.inputs[0]["x"].shape == (400_000,)
