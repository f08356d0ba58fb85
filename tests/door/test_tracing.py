"""A caller's `traceparent` is the parent of the span that a collector gets of his job."""

import asyncio
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx
import numpy as np
import pytest
import tritonclient.grpc as triton
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from tritonclient.utils import InferenceServerException

from pool import AsyncClient
from pool.config.sections import Door as Settings
from pool.door.app import App
from pool.door.door import Door
from support.doors import start_door
from support.pools import RunningPool, until

pytestmark = pytest.mark.door

X = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [1]}]}


def parent(number: int) -> dict[str, str]:
    return {"traceparent": f"00-{number:032x}-{number:016x}-01"}


def test_each_job_is_a_span_of_its_callers_trace(running: RunningPool, monkeypatch: pytest.MonkeyPatch) -> None:
    spans = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["content-length"])))
            spans.extend(span for each in told.resource_spans for scope in each.scope_spans for span in scope.spans)
            self.send_response(200)
            self.end_headers()

    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever).start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
        with start_door(running) as door, httpx.Client(base_url=door.url) as http:
            for headers in (parent(1), {}, {"traceparent": "00-junk"}):
                assert http.post("/v2/models/double/infer", json=X, headers=headers).is_success
            with triton.InferenceServerClient(door.grpc) as client:
                until(client.is_server_live, "gRPC listens too")
                x = triton.InferInput("x", [1, 1], "FP32").set_data_from_numpy(np.float32([[1]]))
                client.infer("double", [x], headers=parent(2))
                with pytest.raises(InferenceServerException, match="NOT_FOUND"):
                    client.infer("nobody", [x], headers=parent(3))
            until(lambda: len(spans) == 5, "all spans are there")
        server.shutdown()
    by_parent = {int.from_bytes(span.parent_span_id): span for span in spans}
    assert [int.from_bytes(by_parent[number].trace_id) for number in (1, 2, 3)] == [1, 2, 3]
    assert [span.name for span in spans if not span.parent_span_id] == ["infer double"] * 2, "new traces"
    for number in (1, 2):
        span, names = by_parent[number], ["queued", "in lane", "started", "done"]
        assert [event.name for event in span.events] == names
        times = [span.start_time_unix_nano, *(event.time_unix_nano for event in span.events), span.end_time_unix_nano]
        assert times == sorted(times)
    about = {each.key: each.value.string_value for each in by_parent[3].attributes}
    assert about == {"pool.protocol": "inference", "pool.model": "nobody", "pool.outcome": "ModelNotFound"}


def test_a_result_has_the_trace_of_its_caller(running: RunningPool) -> None:
    async def told() -> list[str]:
        found = []
        async with AsyncClient(running.endpoint) as client:
            door = Door(client, Settings())
            door.told.append(lambda *job: found.append(job[-1].timeline.traceparent))
            transport = httpx.ASGITransport(App(door))
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
                for headers in (parent(1), {}, parent(2)):
                    await http.post("/v2/models/double/infer", json=X, headers=headers)
        return found

    assert asyncio.run(told()) == [parent(1)["traceparent"], "", parent(2)["traceparent"]]
