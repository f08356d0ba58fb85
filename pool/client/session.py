"""A drop-in for `tf.Session`: `client.session(model).run(fetches, feed_dict)`."""

import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

if TYPE_CHECKING:
    from pool.client.client import Client

from pool.client.request import SessionOptions
from pool.client.session_steps import SessionSteps, waited

__all__ = ["RemoteSession"]


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
        **options: Unpack[SessionOptions],
    ) -> None:
        """As `Client.session` says. One that is `private` is opened at its first run, or by `with`."""
        self._steps = SessionSteps(client, model, private=private, **options)
        self._opening = threading.Lock()

    def run(self, fetches: object, feed_dict: object = None, options: object = None, run_metadata: Any = None) -> Any:
        """What `tf.Session.run` returns: the values in the structure of `fetches`, None for an operation.

        `fetches` are names, or objects that have one, nested in lists, tuples, named tuples, dicts and attrs classes.
        `feed_dict` maps names of any feedable tensors to values. Of `options`, an object like `tf.RunOptions` or a
        mapping, `timeout_in_ms` and `trace_level` count; what was traced goes to `run_metadata.ParseFromString`.

        Waits while the pool has no room, as long as the timeout. Raises `RuntimeError` when it is closed; `TypeError`
        and `ValueError` (mostly as an `InvalidInput` that is one too) with TensorFlow's words for what
        `tf.Session.run` refuses; `InvalidInput` where a placeholder is not fed; else any other `PoolError`.
        """
        steps = self._steps.run(fetches, feed_dict, options, run_metadata)  # what is wrong with them is said first
        self._open()
        return waited(steps, self._steps.calls.ask)

    def _open(self) -> None:
        if self._steps.private is not None and not self._steps.private.is_open():
            with self._opening:
                waited(self._steps.opening(), self._steps.calls.ask)

    # --- life ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """What a private one has assigned is forgotten; the variables that others share stay as they are."""
        self._steps.close()

    def __enter__(self) -> Self:
        self._steps.check_open()
        self._open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
