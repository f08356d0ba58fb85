"""The jobs that are calls of a `RemoteSession`: runs of a model's graph by name, and the life of private sessions."""

from collections.abc import Callable, Mapping

import numpy as np

from pool.wire import session_runs as wire
from pool.wire.signatures import Refused
from pool.wire.tensors import Array
from workers.backend import Model
from workers.private_sessions import PrivateSessions
from workers.session_calls import session_call
from workers.signatures import Invocation

__all__ = ["Sessions"]

Load = Callable[[str], Model]


class Sessions:
    """Of one worker. Safe from several threads."""

    def __init__(self, models: Mapping[str, Model], load: Load, private: PrivateSessions | None = None) -> None:
        """`load`: loads a model once more, by its name; raises as `workers.backend.Backend.load` does."""
        self._models = models
        self._load = load
        self._private = PrivateSessions() if private is None else private

    def run(self, model: str, invocation: Invocation, feeds: Mapping[str, Array], owner: int) -> dict[str, Array]:
        """What a job of one of the `SESSION_SIGNATURES` is answered with. Raises `Refused` and `ProcessUnusable`.

        `owner`: as in the wire's RUN.
        """
        match invocation.signature:
            case wire.OPEN:
                name = np.empty((), object)
                name[()] = self._private.open(model, lambda: self._load(model), owner)
                return {wire.SESSION: name}
            case wire.TOUCH:
                self._private.touch(model, _named(feeds))
                return {}
            case wire.CLOSE:
                self._private.close(_named(feeds))
                return {}
            case wire.PRIVATE_RUN:
                with self._private.running(model, _named(feeds)) as private:
                    return private.session_run(session_call(invocation, feeds, may_write=True))
        may_write = invocation.signature == wire.WRITING_RUN
        remote = invocation.signature == wire.REMOTE_RUN
        return self._models[model].session_run(session_call(invocation, feeds, may_write, remote))

    def client_left(self, owner: int) -> None:
        """A client is gone, and with it its private sessions."""
        self._private.client_left(owner)

    def tend(self, now: float) -> None:
        """Called by lanes that have nothing to do."""
        self._private.tend(now)


def _named(feeds: Mapping[str, Array]) -> bytes:
    given = feeds.get(wire.SESSION)
    if given is None or given.ndim or not given.dtype.hasobject:
        raise Refused("which private session it is for is not said")
    name: bytes = given.item()
    return name
