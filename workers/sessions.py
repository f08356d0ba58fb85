"""The jobs that are calls of a `RemoteSession`: runs of a model's graph by name, and the life of private sessions.

A private session has variables of its own: it is the model loaded once more, for whoever opened it. It ends when its
client closes it; when the pool finds that its client is gone; when its client has forgotten it, so that nobody touches
it for `LEASE_S`; and with the worker. What it holds is not given up while a run of it is under way.
"""

import logging
import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from pool.wire import session_runs as wire
from pool.wire.faults import Fault
from pool.wire.signatures import Refused
from pool.wire.tensors import Array
from workers.backend import CannotLoad, LoadFailed, Model, SessionCall, WrongDevices
from workers.calls import Call

__all__ = ["LEASE_S", "MOST_OPEN", "Load", "Sessions"]

log = logging.getLogger("workers.private")

MOST_OPEN = 8  # a worker: each has all of the model's variables in the device's memory
LEASE_S = 120.0  # its client touches it every 20 s
TICK_S = 1.0  # time counts only while a lane is idle: until then a touch may be waiting for one
MOST_ENDED = 256
LEFT = "the pool lost its client, so the session was closed"

Load = Callable[[str], Model]


@dataclass(slots=True, eq=False)
class _Session:
    about: str
    model: Model
    owner: int
    idle_s: float = 0.0
    running: int = 0
    closing: bool = False


class Sessions:
    """Of one worker. Safe from several threads."""

    def __init__(
        self, models: Mapping[str, Model], load: Load, most_open: int = MOST_OPEN, lease_s: float = LEASE_S
    ) -> None:
        """`load`: loads a model once more, by its name; raises as `workers.backend.Backend.load` does."""
        self._models = models
        self._load = load
        self._most_open = most_open
        self._lease_s = lease_s
        self._lock = threading.Lock()
        self._loading = 0
        self._open: dict[bytes, _Session] = {}
        self._ended: dict[bytes, str] = {}  # and why
        self._left: deque[int] = deque(maxlen=MOST_ENDED)  # clients that are gone: one may have come to be opened late
        self._looked: float | None = None

    def __len__(self) -> int:
        return len(self._open)

    def run(self, model: str, call: Call, feeds: Mapping[str, Array], owner: int) -> dict[str, Array]:
        """What a job of one of the `SESSION_SIGNATURES` is answered with. Raises `Refused` and `ProcessUnusable`.

        `owner`: as in the wire's RUN.
        """
        match call.signature:
            case wire.OPEN:
                name = np.empty((), object)
                name[()] = self.open(model, owner)
                return {wire.SESSION: name}
            case wire.TOUCH:
                self.touch(model, _named(feeds))
                return {}
            case wire.CLOSE:
                self.close(_named(feeds))
                return {}
            case wire.PRIVATE_RUN:
                with self.running(model, _named(feeds)) as private:
                    return private.session_run(_session_call(call, feeds, may_write=True))
        may_write = call.signature == wire.WRITING_RUN
        remote = call.signature == wire.REMOTE_RUN
        return self._models[model].session_run(_session_call(call, feeds, may_write, remote))

    def open(self, about: str, owner: int) -> bytes:
        """The name of a new session of the model `about`. Loads it, which may take long. Raises `Refused`.

        `owner`: the number of the client for whom it is, which is never another's.
        """
        with self._lock:
            if owner in self._left:
                raise Refused(LEFT, Fault.STATEFUL_WORKER_LOST)
            if len(self._open) + self._loading >= self._most_open:
                raise Refused(
                    f"this worker has {self._most_open} private sessions, the most that it may have;"
                    " close those that you do not need",
                    Fault.OVERLOADED,
                )
            self._loading += 1
        name, wanted = secrets.token_bytes(16), False
        model: Model | None = None
        try:
            model = self._load(about)
        except (CannotLoad, LoadFailed, WrongDevices) as error:
            raise Refused(f"cannot open a private session: {error}", Fault.MODEL_FAILED) from error
        finally:
            with self._lock:  # at once, or another one takes its place in between
                self._loading -= 1
                wanted = model is not None and owner not in self._left
                if model is not None and wanted:
                    self._open[name] = _Session(about, model, owner)
        if not wanted:
            model.close()
            raise Refused(LEFT, Fault.STATEFUL_WORKER_LOST)
        return name

    @contextmanager
    def running(self, about: str, name: bytes) -> Iterator[Model]:
        """The session's model, which stays open meanwhile. Raises `Refused` for one that is not there any more."""
        with self._lock:
            session = self._find(about, name)
            session.running += 1
        try:
            yield session.model
        finally:
            with self._lock:
                session.running -= 1
                session.idle_s = 0.0
                over = session.closing and not session.running
            if over:
                session.model.close()

    def touch(self, about: str, name: bytes) -> None:
        """Raises `Refused` for one that is not there any more."""
        with self._lock:
            self._find(about, name).idle_s = 0.0

    def close(self, name: bytes) -> None:
        """Does nothing to one that is not there."""
        with self._lock:
            session = self._open.pop(name, None)
            over = session is not None and self._end(session)
        if session is not None and over:
            session.model.close()

    def client_left(self, owner: int) -> None:
        """The client is gone: what was opened for it ends, and what is still to be opened for it is not."""
        with self._lock:
            self._left.append(owner)
            names = [name for name, session in self._open.items() if session.owner == owner]
            ended = [self._forget(name, LEFT) for name in names]
            over = [session for session in ended if self._end(session)]
        for session in ended:
            log.info("closed a private session of model %s: its client is gone", session.about)
        for session in over:
            session.model.close()

    def tend(self, now: float) -> None:
        """Called by lanes that have nothing to do: ends what nobody has touched for too long."""
        if not self._open:
            self._looked = None
            return
        late: list[_Session] = []
        with self._lock:
            passed = 0.0 if self._looked is None else min(TICK_S, now - self._looked)
            self._looked = now
            for name, session in list(self._open.items()):
                session.idle_s = 0.0 if session.running else session.idle_s + passed
                if session.idle_s >= self._lease_s:
                    self._forget(name, f"its client was silent for {self._lease_s:g} s, so the session was closed")
                    self._end(session)
                    late.append(session)
        for session in late:
            log.info("closed a private session of model %s: its client left it", session.about)
            session.model.close()

    def _find(self, about: str, name: bytes) -> _Session:
        session = self._open.get(name)
        if session is not None and session.about == about:
            return session
        why = self._ended.get(name, "it was closed, or another worker has replaced its worker")
        raise Refused(f"this private session is lost with its variables: {why}", Fault.STATEFUL_WORKER_LOST)

    def _forget(self, name: bytes, why: str) -> _Session:
        self._ended[name] = why
        if len(self._ended) > MOST_ENDED:
            del self._ended[next(iter(self._ended))]
        return self._open.pop(name)

    def _end(self, session: _Session) -> bool:
        """Whether its model can be closed at once; otherwise the last of its runs does it."""
        session.closing = True
        return not session.running


def _session_call(call: Call, feeds: Mapping[str, Array], may_write: bool, remote: bool = False) -> SessionCall:
    """Raises `Refused`."""
    return SessionCall(
        {name: array for name, array in feeds.items() if name not in (wire.SESSION, wire.TRACE_LEVEL)},
        frozenset(each.name for each in call.inputs if each.header.weak),
        call.outputs,
        may_write,
        _trace_level(feeds),
        remote,
    )


def _named(feeds: Mapping[str, Array]) -> bytes:
    given = feeds.get(wire.SESSION)
    if given is None or given.ndim or not given.dtype.hasobject:
        raise Refused("it does not name its private session")
    name: bytes = given.item()
    return name


def _trace_level(feeds: Mapping[str, Array]) -> int:
    given = feeds.get(wire.TRACE_LEVEL)
    if given is None:
        return 0
    if given.ndim or given.dtype.kind not in "iu" or not 0 <= int(given) <= 3:
        raise Refused("the trace level must be a number from 0 to 3")
    return int(given)
