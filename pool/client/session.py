"""A drop-in for `tf.Session`: `client.session(model).run(fetches, feed_dict)`.

run ─┬─► RUN ─┬─► the values
     │        └─ it would write variables ─► WRITING_RUN ─► the values    (the next time without asking)
     └─ private ─► OPEN, once ─► PRIVATE_RUN in the same worker ─► the values
"""

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from pool.client.client import Client

from pool.client.fetches import Fetches, flat_feeds
from pool.client.private_session import PrivateSession
from pool.client.run_options import run_options
from pool.client.session_calls import InvalidValue, SessionCalls
from pool.wire import session_runs as wire

__all__ = ["RemoteSession"]

MOST_WRITERS = 1024


class RemoteSession:
    """Runs a model's graph by the names of its tensors and operations, as `tf.Session` does. Made by `Client.session`.

    Only what leads to the fetches is run. The graph cannot grow. The variables are those of the model, which all its
    sessions share, unless it is `private`. Safe for many threads; may live as long as its client.

    Whether a run writes variables is seen from the graph. From the first one on all jobs of the model run in one
    worker, which has what was written until it is replaced. Such a run is never repeated: `WorkerLost`, not
    retryable, if its worker dies; and so for each run that is `private`, whose session is lost then.
    """

    def __init__(
        self,
        client: "Client",
        model: str,
        *,
        private: bool = False,
        timeout: float | None = None,
        priority: int = 0,
        device: str | int | None = None,
        version: str | int | None = None,
    ) -> None:
        """As `Client.session` says. One that is `private` is opened at its first run, or by `with`."""
        self._calls = SessionCalls(client, model, priority, version)
        self._timeout = timeout
        self._device = device
        self._writers: dict[tuple[tuple[str, ...], tuple[str, ...]], None] = {}
        self._closed = False
        self._private = PrivateSession(self._calls, device) if private else None

    def run(self, fetches: object, feed_dict: object = None, options: object = None, run_metadata: Any = None) -> Any:
        """What `tf.Session.run` returns: the values in the structure of `fetches`, None for an operation.

        `fetches` are names, or objects that have one, nested in lists, tuples, named tuples, dicts and attrs classes.
        `feed_dict` maps names of any feedable tensors to values. Of `options`, an object like `tf.RunOptions` or a
        mapping, `timeout_in_ms` and `trace_level` count; what was traced goes to `run_metadata.ParseFromString`.

        Waits while the pool has no room, as long as the timeout. Raises `RuntimeError` when it is closed; `TypeError`
        and `ValueError` (mostly as an `InvalidInput` that is one too) with TensorFlow's words for what
        `tf.Session.run` refuses; `InvalidInput` where a placeholder is not fed; else any other `PoolError`.
        """
        self._check_open()
        wanted = Fetches(fetches)
        feeds = dict(flat_feeds(feed_dict))
        timeout, trace_level = run_options(options)
        if timeout is None:
            timeout = self._timeout
        for name in (*wanted.names, *feeds):
            if name.startswith(":"):
                raise InvalidValue(f"The name {name!r} refers to a Tensor which does not exist.")
        if not wanted.names:
            return wanted.built({})
        if trace_level and run_metadata is not None:
            feeds[wire.TRACE_LEVEL] = trace_level
        answer = self._answer(wanted.names, feeds, timeout)
        if run_metadata is not None and wire.RUN_METADATA in answer:
            run_metadata.ParseFromString(answer[wire.RUN_METADATA].item())
        # TensorFlow gives scalars, not arrays without axes; but what is fed, as the array that it has become.
        return wanted.built(
            {name: array if array.ndim or name in feeds else array[()] for name, array in answer.items()}
        )

    def _answer(self, names: tuple[str, ...], inputs: Mapping[str, object], timeout: float | None) -> dict[str, Any]:
        if self._private is not None:
            return self._private.run(names, inputs, timeout)
        asked = names, tuple(inputs)
        if asked not in self._writers:
            answer, _ = self._calls.ask(wire.RUN, names, inputs, timeout, self._device)
            if wire.WRITES not in answer:
                return answer
            if len(self._writers) < MOST_WRITERS:
                self._writers[asked] = None
        return self._calls.ask(wire.WRITING_RUN, names, inputs, timeout, self._device)[0]

    # --- life ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """What a private one has assigned is forgotten; the variables that others share stay as they are."""
        self._closed = True
        if self._private is not None:
            self._private.close()

    def __enter__(self) -> Self:
        self._check_open()
        if self._private is not None:
            self._private.open(self._timeout)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("Attempted to use a closed Session.")
