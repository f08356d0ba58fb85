"""Version 1 of a model without versions: it is that model, for as long as it has none."""

import json
from typing import Any

from gateway.fakes import Echo, asked, infer
from gateway.told import model
from pool import JobResult
from pool.errors import ModelNotFound
from pool.gateway.inference import Inference

BODY = json.dumps({"inputs": []}).encode()


class Versions(Echo):
    """Serves these versions, of which the last is the default; none: it has no versions."""

    served: tuple[int, ...] = ()

    async def run(self, model: str, inputs: Any, **options: Any) -> JobResult:
        wanted = options.get("version")
        self.version = wanted or (self.served[-1] if self.served else None)
        if wanted is not None and wanted not in self.served:
            self.jobs.append((model, inputs, options))
            raise ModelNotFound(f"version {wanted} is not served")
        return await super().run(model, inputs, **options)

    def serve(self, *served: int) -> None:
        self.served = served
        self.told = tuple(model({}, version=number) for number in served) or (model({}),)
        self.jobs.clear()

    def asked_for(self) -> list[Any]:
        return [options.get("version") for _, _, options in self.jobs]


def versions_of(client: Versions, inference: Inference, path: str) -> tuple[int, Any]:
    response, body = asked(inference, client, infer(BODY, None, f"/v2/models/m{path}/infer"))
    return response.status, json.loads(body).get("model_version")


def test_the_first_version_of_a_model_without_any_is_the_model() -> None:
    client, inference = Versions(), Inference()
    client.serve()
    assert versions_of(client, inference, "") == (200, "1")
    assert versions_of(client, inference, "/versions/1") == (200, "1")
    assert client.asked_for() == [None, 1, None]
    assert versions_of(client, inference, "/versions/1") == (200, "1")
    assert client.asked_for()[3:] == [None], "it is asked for once"
    assert versions_of(client, inference, "/versions/2") == (404, None)


def test_a_model_that_has_versions_by_now_is_asked_for_the_one_that_is_meant() -> None:
    client, inference = Versions(), Inference()
    client.serve()
    assert versions_of(client, inference, "/versions/1") == (200, "1")
    client.serve(1, 2)
    assert versions_of(client, inference, "/versions/1") == (200, "1")
    assert client.asked_for() == [None, 1], "the answer of the other version is dropped"
    assert versions_of(client, inference, "/versions/1") == (200, "1")
    assert client.asked_for()[2:] == [1]


def test_a_model_with_other_versions_has_no_first() -> None:
    client, inference = Versions(), Inference()
    client.serve(2, 3)
    assert versions_of(client, inference, "/versions/1") == (404, None)
    assert versions_of(client, inference, "/versions/3") == (200, "3")
    assert client.asked_for() == [1, 3]


def test_a_model_that_is_not_there_is_refused_in_the_pools_words() -> None:
    client, inference = Versions(), Inference()
    response, body = asked(inference, client, infer(BODY, None, "/v2/models/m/versions/1/infer"))
    assert (response.status, json.loads(body)["error"]) == (404, "version 1 is not served")
