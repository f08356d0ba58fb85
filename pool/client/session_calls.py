"""The jobs of a session: each waits itself where the pool has no room."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack

if TYPE_CHECKING:
    from pool.client.client import Client
    from pool.client.futures import JobFuture
    from pool.client.timeline import JobTimeline

from pool.client.request import RunOptions, request_for
from pool.errors import InvalidInput
from pool.wire import session_runs as wire

__all__ = ["Answer", "InvalidType", "InvalidValue", "SessionCall", "SessionCalls", "answer_of"]

Answer: TypeAlias = "tuple[dict[str, Any], JobTimeline]"
"""The answer's arrays, and where it was."""


class InvalidType(InvalidInput, TypeError):
    """What `tf.Session.run` raises as a `TypeError`."""


class InvalidValue(InvalidInput, ValueError):
    """What `tf.Session.run` raises as a `ValueError`."""


@dataclass(frozen=True, slots=True)
class SessionCall:
    """One job: a signature of `pool.wire.session_runs`, the names to fetch, and what to feed."""

    signature: str
    names: tuple[str, ...]
    inputs: Mapping[str, object]
    timeout: float | None
    device: str | int | None


class SessionCalls:
    """Safe for many threads."""

    def __init__(self, client: "Client", model: str, *, private: bool = False, **options: Unpack[RunOptions]) -> None:
        """`private`: its jobs are of a session with variables of its own.

        Raises `InvalidInput` for a name or an option that no job can have.
        """
        request_for(model, signature=wire.RUN, outputs=(), **options)
        self._connected = client._home(model, private=private)
        self._model = model
        self._options = options

    def ask(self, call: SessionCall) -> Answer:
        """Waits for it. Raises a `PoolError`, in TensorFlow's words where it has some."""
        future = self.start(call, wait=True)
        try:
            return answer_of(future)
        finally:
            future.cancel()  # does nothing to one that is done

    def start(self, call: SessionCall, *, wait: bool) -> "JobFuture":
        """`wait`: until the job is sent. Raises a `PoolError`."""
        from pool.client.payload import Inputs, encode_call, to_inputs  # numpy comes with the first tensor

        began = time.monotonic()
        asked = {"signature": call.signature, "outputs": call.names, "timeout": call.timeout, "device": call.device}
        request = request_for(self._model, **asked, **self._options)  # type: ignore[arg-type]  # as they are named
        connection = self._connected()
        rows, payload = encode_call(
            self._model, Inputs(to_inputs(self._model, call.inputs).tensors, None), connection.shared_memory
        )
        return connection.submit(request, rows, payload, began, patient=True, wait=wait)


def answer_of(future: "JobFuture") -> Answer:
    """Waits for it. Raises as `SessionCalls.ask`."""
    try:
        answer = future.result()
    except InvalidInput as error:
        raise _as_tensorflow_raises(error) from None
    assert future.timeline is not None
    return answer, future.timeline


def _as_tensorflow_raises(error: InvalidInput) -> InvalidInput:
    kind, _, text = str(error).partition(": ")
    raised = {"TypeError": InvalidType, "ValueError": InvalidValue}.get(kind)
    return error if raised is None else raised(text)
