"""The client: one object a process, used by all its threads."""

import atexit
import logging
import os
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from pool.client.connection import Connection

from pool.client.futures import JobFuture
from pool.client.peer import CONNECT_S, RECONNECT_S, Peer
from pool.client.placement import report_of
from pool.client.request import JobOptions, SessionOptions, request_for
from pool.client.scatter import Replicas
from pool.client.session import RemoteSession
from pool.errors import PoolError
from pool.wire.signatures import PLACEMENT

__all__ = ["Client"]

ASK_TIMEOUT_S = 10.0
LONGEST_SPIN_US = 10_000
CLOSED = "this client is closed"

log = logging.getLogger("pool.client")

_live: "weakref.WeakSet[Client]" = weakref.WeakSet()
_before_fork: "list[Connection]" = []  # never freed: their sockets are the parent's


class Client(Replicas):
    """Submits jobs to a pool. Connects at the first use, and again when the pool was gone. Safe for many threads.

    A pool that goes away and returns, restarted say, costs no job: what has no answer is submitted again, each job to
    its own deadline. One of a model that keeps state which may have started ends in `WorkerLost` instead.

    Used after `fork`, it makes a connection of its own; jobs submitted before are the parent's and fail in the child.
    Dropped without `close`, it ends by itself once the futures that are still out have their answers.
    """

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        connect_timeout: float = CONNECT_S,
        reconnect_timeout: float = RECONNECT_S,
        spin_us: int = 0,
    ) -> None:
        """`endpoint`: "ipc://…" or "tcp://host:port"; None is the local pool's default.

        `connect_timeout`: for how many seconds a pool is looked for that has not been there; `reconnect_timeout`: one
        that was. Then jobs end in `PoolUnreachable`; with a `reconnect_timeout` of 0 they do as soon as it is lost.

        `spin_us`: for how many microseconds the caller of a lone `run` looks again and again for the answer before he
        sleeps. That costs a core, and is quicker where there is one to spare; the pool has its own `spin_us`.
        """
        self._peer = Peer.of(endpoint, connect_timeout, reconnect_timeout)
        if not 0 <= spin_us <= LONGEST_SPIN_US:
            raise ValueError(f"spin_us is {spin_us}, give microseconds from 0 to {LONGEST_SPIN_US}")
        self._spin_s = spin_us * 1e-6
        self._lock = threading.Lock()
        self._connection: Connection | None = None  # ZeroMQ comes with the first
        self._closed = False
        _live.add(self)

    @property
    def endpoint(self) -> str:
        return self._peer.endpoint

    # --- jobs ---------------------------------------------------------------------------------------------------

    def submit(
        self,
        model: str,
        inputs: object,
        *,
        block: bool = False,
        **options: Unpack[JobOptions],
    ) -> JobFuture:
        """One job; never raises what the future can say, and never blocks unless `block` asks for it.

        `inputs` maps the signature's input names to arrays, Python numbers, strings or nested lists of them; with one
        input it may be that input alone. The arrays are copied before this returns. `signature` is
        `serving_default` by default, or the only one. `outputs` are the names to return, all by default. `timeout` is
        in seconds, the pool's `default_timeout` by default. `priority`: from -100 to 100, higher first. `device`: only
        there, by a name that `pool status` shows, such as "gpu:0", "cpu:1", a uuid or "slot:3"; 0 means "0".
        `version`: of a model that is served from a folder of numbered versions, 3 say, or a label; by default the
        newest of several, else any that is served.
        Errors, all from `pool.errors`, are the future's; only a client that is closed raises `PoolError` itself.

        `block`: a pool that is overloaded, and this client's credit when it is used up, slow the caller down instead of
        failing the job. This waits, while the job's time lasts, until the job is sent; one that the pool has no room
        for is sent again when there may be, and meanwhile no other blocking job of its model leaves. `Overloaded` then
        means that there was no room in all its time. In a done-callback `block` raises `PoolError`.
        """
        return self._start(model, inputs, patient=block, wait=block, **options)

    def run(
        self,
        model: str,
        inputs: object,
        *,
        block: bool = False,
        **options: Unpack[JobOptions],
    ) -> "dict[str, np.ndarray[Any, Any]]":
        """`submit(…).result()`; where that is interrupted, by Ctrl-C say, the job is cancelled."""
        from pool.client.payload import encode_call  # numpy comes with the first tensor

        began = time.monotonic()
        request = request_for(model, **options)
        connection = self._connected()
        rows, payload = encode_call(model, inputs, connection.arenas)
        return connection.run(request, rows, payload, began, patient=block)  # type: ignore[no-any-return]

    def placement(self, model: str, *, timeout: float | None = None, device: str | int | None = None) -> dict[str, Any]:
        """What of a model runs where in a worker, which `device` may choose: what `pool placement --json` prints.

        A job like others: the worker runs each signature that keeps no state once more, traced. See
        `pool.client.placement`.
        """
        future = self.submit(model, {}, signature=PLACEMENT, timeout=timeout, device=device)
        try:
            return report_of(model, future)
        finally:
            future.cancel()

    def submit_many(
        self,
        model: str,
        inputs: Iterable[object],
        *,
        block: bool = False,
        **options: Unpack[JobOptions],
    ) -> list[JobFuture]:
        """A job for each of the inputs, and their futures in this order: `submit` for many, at a fraction of its cost.

        Small inputs of one shape travel together; each fails, succeeds or is cancelled by itself. With `block` those
        that the pool has no room for wait for it while their time lasts, as with `submit`, but this does not wait for
        them.
        """
        from pool.client.bulk.sender import submit_many  # numpy comes with the first tensor

        if self._closed:
            raise PoolError(CLOSED)
        try:
            request = request_for(model, **options)
        except PoolError as error:
            return [_refused(error) for _ in inputs]
        return submit_many(self._connected, request, inputs, patient=block)

    def map(
        self,
        model: str,
        inputs: Iterable[object],
        *,
        in_flight: int = 64,
        **options: Unpack[JobOptions],
    ) -> "Iterator[dict[str, np.ndarray[Any, Any]]]":
        """The results in the order of the inputs, of which at most `in_flight` are read ahead.

        Small inputs of one shape are copied as they are read, and travel together while the pool is busy; each fails or
        succeeds by itself. Quickest is one array whose items are the inputs (`rows[:, None]`), of which whole stretches
        are sent as they lie. A pool that is overloaded slows it down: it submits with `block`. Raises the first failed
        job's error in its turn, and reads no further input once that is known. What is in flight when the iterator is
        closed is cancelled.
        """
        if in_flight < 1:
            raise ValueError(f"in_flight is {in_flight}, give a positive number")
        from pool.client.bulk.mapping import mapped  # numpy comes with the first tensor

        if self._closed:
            raise PoolError(CLOSED)
        request = request_for(model, **options)
        yield from mapped(self._connected, request, inputs, in_flight)

    def session(
        self,
        model: str,
        *,
        private: bool = False,
        **options: Unpack[SessionOptions],
    ) -> RemoteSession:
        """In the place of a `tf.Session` that has the model loaded: `session(model).run(fetches, feed_dict)`.

        `private`: with variables of its own, as they are in the model's files, in a worker that keeps them for it;
        otherwise with those of the model, which jobs and sessions share. The rest as in `submit`, for each run.
        """
        return RemoteSession(self, model, private=private, **options)

    def empty(self, shape: int | Sequence[int], dtype: "npt.DTypeLike" = "float32") -> "np.ndarray[Any, Any]":
        """An array for the inputs of a job, in the memory that this client shares with a pool on the same machine.

        Its values are anything. Submitted, it (or a view of it in C order) is not copied, so it must not be written
        until the future has its result; where the future ended otherwise, not any more. The memory is used again when
        the array and its views are gone. Without a pool that lends memory, or when that is full, it is an array like
        any other, and is copied when it is submitted. The first call waits for the pool, as long as for a connection.
        """
        from pool.client.payload import empty  # numpy comes with the first tensor

        return empty(shape, dtype, self._connected().lent_memory(self._peer.connect_timeout_s))

    def _start(
        self,
        model: str,
        inputs: object,
        *,
        patient: bool,
        wait: bool = False,
        **options: Unpack[JobOptions],
    ) -> JobFuture:
        """`submit`, in which a `patient` job waits for room, and the caller with it only where `wait` says so."""
        from pool.client.payload import encode_call  # numpy comes with the first tensor

        began = time.monotonic()
        if self._closed:
            raise PoolError(CLOSED)
        try:
            request = request_for(model, **options)
            connection = self._connected()
            rows, payload = encode_call(model, inputs, connection.arenas)
        except PoolError as error:
            return _refused(error)
        return connection.submit(request, rows, payload, began, patient=patient, wait=wait)

    def submit_payload(
        self,
        model: str,
        *,
        rows: int | None,
        payload: Sequence[bytes],
        **options: Unpack[JobOptions],
    ) -> JobFuture:
        """`submit` of inputs that are encoded already, such as those of a quarantined job (`pool.quarantine.load`)."""
        # The answer needs it, in the I/O thread: a child that is forked while that imports would wait for ever.
        import_module("pool.client.payload")
        began = time.monotonic()
        try:
            request = request_for(model, **options)
            connection = self._connected()
        except PoolError as error:
            return _refused(error)
        return connection.submit(request, rows, payload, began)

    def _check_thread(self) -> None:
        """Raises `PoolError` where waiting for an answer would wait for ever."""
        if (connection := self._connection) is not None:
            connection.driver.check_wait()

    # --- questions ----------------------------------------------------------------------------------------------

    def _ask(self, what: str, about: str = "") -> Any:
        return self._connected().ask(what, about, ASK_TIMEOUT_S + self._peer.longest_timeout_s)

    # --- life ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Cancels what is outstanding. The client cannot be used afterwards."""
        with self._lock:
            self._closed = True
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        connection: Connection | None = getattr(self, "_connection", None)  # None too where `__init__` raised
        if connection is not None:
            connection.release()

    def _connected(self) -> "Connection":
        """Raises `PoolUnreachable` where none can be made, `PoolError` when the client is closed."""
        connection = self._connection
        if connection is not None and not connection.lost:
            return connection
        from pool.client.connection import Connection

        with self._lock:
            if self._closed:
                raise PoolError(CLOSED)
            if self._connection is None or self._connection.lost:
                self._peer.check()
                self._connection = Connection(self._peer, self._spin_s)
            return self._connection

    def _after_fork(self) -> None:
        self._lock = threading.Lock()  # another thread of the parent may have held it
        if self._connection is not None:
            _before_fork.append(self._connection)
            self._connection.abandon_after_fork()
            self._connection = None


def _refused(error: PoolError) -> JobFuture:
    future = JobFuture()
    future.finish(error)
    return future


def _after_fork_in_child() -> None:
    for client in list(_live):
        try:
            client._after_fork()
        except Exception:  # the others are to be put right too
            log.exception("a client was not put right after a fork")


def _close_all() -> None:
    for client in list(_live):
        client.close()


os.register_at_fork(after_in_child=_after_fork_in_child)
atexit.register(_close_all)
