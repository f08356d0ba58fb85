"""Spans for OpenTelemetry: one for each job of the door, in the trace of its caller. Needs the extra `otel`."""

import time

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from pool import Result
from pool.door.door import HEADERS

# Spans leave by a thread, as OpenTelemetry's environment variables say; those that cannot are dropped.
PROVIDER, CALLER = TracerProvider(), TraceContextTextMapPropagator()
PROVIDER.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
TRACER = PROVIDER.get_tracer("pool.door")


def tell(protocol: str, model: str, outcome: str, seconds: float, result: Result | None) -> None:
    """Of `Door.told`. Events are reckoned back from now, so an answer's way belongs to its run."""
    end, about = time.time_ns(), {"pool.protocol": protocol, "pool.model": model, "pool.outcome": outcome}
    texts = [[part if isinstance(part, str) else part.decode("latin-1") for part in pair] for pair in HEADERS.get()]
    parent, began = CALLER.extract(dict(texts)), end - int(seconds * 1e9)
    span = TRACER.start_span(f"infer {model:.80}", parent, SpanKind.SERVER, about, start_time=began)
    if result is None:
        span.set_status(StatusCode.ERROR)
    else:
        total_s, in_lane_s, run_s, *_ = result.timeline
        for name, ago_s in (("queued", total_s), ("in lane", in_lane_s + run_s), ("started", run_s), ("done", 0)):
            span.add_event(name, timestamp=end - int(ago_s * 1e9))
        span.set_attributes({"pool.version": result.version, "pool.device": result.device})
        span.set_attribute("pool.slot", result.slot)
    span.end(end)
