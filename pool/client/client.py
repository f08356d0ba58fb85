"""The client: one object per process, used by all its threads."""

import atexit
import contextlib
import logging
import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from pool.client.connection import Connection
    from pool.client.shared_memory import SharedMemory
    from pool.client.spread import Spread
    from pool.wire.records import Model, Placement

from pool.client.discovery import address_in
from pool.client.following import Following
from pool.client.futures import JobFuture
from pool.client.peer import CONNECT_S, RECONNECT_S, Peer, addresses
from pool.client.placement import report_of
from pool.client.questions import check_model, check_timeout, records
from pool.client.request import JobOptions, Request, SessionOptions, check_in_flight, request_for
from pool.client.result import JobResult
from pool.client.scatter import Replicas
from pool.client.session import RemoteSession
from pool.client.waits import ANSWERS_S, none_ready, until_one_is_ready
from pool.endpoint import ENDPOINT_VARIABLE
from pool.errors import Incompatible, InvalidState, PoolError, PoolUnreachable
from pool.keys import KeyFile
from pool.wire.codec import BadFrame, unpack
from pool.wire.signatures import PLACEMENT

__all__ = ["Client"]

ASK_TIMEOUT_S = 10.0
LARGEST_ANSWER_BYTES = 1 << 30  # thousands of models with their signatures take megabytes
LONGEST_SPIN_US = 10_000
CLOSED = "this client is closed"
ASK_ONE = "this client has {} pools, and this is about one: ask one of `client.pools`, or give one --endpoint"

log = logging.getLogger("pool.client")

_live: "weakref.WeakSet[Client]" = weakref.WeakSet()
_before_fork: "list[Connection]" = []  # never freed: their sockets are the parent's


class Client(Replicas):
    """Submits jobs to a pool. Connects at the first use, and again after the pool was gone. Safe for many threads.

    A pool that restarts costs no job: the client submits jobs without an answer again, within their timeouts. The
    exception is a job of a stateful model that may have started: it ends in `WorkerLost`.

    After `fork`, the child's client makes its own connection. Jobs submitted before belong to the parent and fail in
    the child. A client dropped without `close` ends itself when the last open future has its answer.
    """

    def __init__(
        self,
        endpoint: str | Sequence[str] | None = None,
        *,
        connect_timeout: float = CONNECT_S,
        reconnect_timeout: float = RECONNECT_S,
        key: KeyFile | None = None,
        server_key: KeyFile | None = None,
        impersonate: str | None = None,
        spin_us: int = 0,
    ) -> None:
        """`endpoint`: "ipc://…", "tcp://host:port" or a pool's name; None: as `pool.endpoint.endpoints` says.

        "pool+ray://HOST:PORT", or "pool+ray://auto": all pools of a Ray cluster, wherever they are placed. This waits
        for the first of them, a minute at most, and raises `PoolUnreachable` where there is none.

        `key`: the path of this client's secret key; `server_key`: of the pool's public key, or its 40 characters. None:
        as in the user's profiles, else $POOL_KEY and $POOL_SERVER_KEY. An endpoint beyond this machine needs both.
        `InvalidConfig` says what is missing. Where the pool does not let the key in, jobs end in `NotAllowed`.

        `impersonate`: the name of a client, such as a gateway's, that this one is to be for the pool: its jobs count on
        that client's account, and it may do what both may. Takes a right; without it jobs end in `NotAllowed`.

        `connect_timeout`: how many seconds to look for a pool at first; `reconnect_timeout`: for one that was lost.
        After that, jobs end in `PoolUnreachable`. With a `reconnect_timeout` of 0 they end as soon as it is lost.

        `spin_us`: how many microseconds the caller of a lone `run` polls for the answer before it sleeps. Polling is
        faster but keeps a core busy. The pool has its own `spin_us` in `[advanced]`.
        """
        self._timeouts = connect_timeout, reconnect_timeout
        self._keys = key, server_key
        self._impersonate = impersonate
        self._discovery = self._discover(endpoint)
        found = self._discovery
        peers = self._peers_of(endpoint) if found is None else self._named(found.wait())
        self._peer = peers[0]
        if not 0 <= spin_us <= LONGEST_SPIN_US:
            raise ValueError(f"spin_us is {spin_us}; give microseconds from 0 to {LONGEST_SPIN_US}")
        self._spin_s = spin_us * 1e-6
        self._lock = threading.Lock()
        self._connection: Connection | None = None  # ZeroMQ comes with the first
        several = len(peers) > 1 or self._discovery is not None
        self._spread: Spread | None = _spread(peers, self._spin_s) if several else None
        self._each: dict[str, Client] = {}  # of several pools
        self._closed = False
        _live.add(self)
        if self._discovery is not None:  # what came meanwhile
            self._follow(self._discovery.pools)

    def _peers_of(self, endpoints: str | Sequence[str] | None) -> list[Peer]:
        given = addresses(endpoints)
        # One of several may be on this machine, and a pool's name brings its own keys.
        alone = len(given) == 1 and self._discovery is None
        keys = {each: self._keys if alone or str(each).startswith("tcp://") else (None, None) for each in given}
        return [Peer.of(each, *self._timeouts, *keys[each], self._impersonate) for each in given]

    def _discover(self, endpoint: str | Sequence[str] | None) -> Following | None:
        """The pools of a Ray cluster, if one is given."""
        address = address_in(*addresses(os.environ.get(ENDPOINT_VARIABLE) if endpoint is None else endpoint))
        if address is None:
            return None
        follow = weakref.WeakMethod(self._follow)
        return Following(address, lambda pools: (found := follow()) and found(pools))

    def _follow(self, pools: Mapping[str, str]) -> None:
        if hasattr(self, "_spread"):
            with contextlib.suppress(InvalidState):  # just closed
                self._replace(pools)

    def _named(self, pools: Mapping[str, str]) -> list[Peer]:
        found = self._peers_of([*pools.values()])
        for peer, name in zip(found, pools, strict=True):
            peer.name = name
        return found

    @property
    def endpoint(self) -> str:
        """Of several pools, that of the first."""
        return self._peer.endpoint

    @property
    def pools(self) -> "tuple[Client, ...]":
        """A client for each of its pools: to ask it, to change what runs there, or to use a device of it.

        They have connections of their own, and are closed with this one. A client of one pool is its own only one.
        """
        if self._spread is None:
            return (self,)
        with self._lock:
            self._check_open()
            peers = self._spread.peers
            for gone in self._each.keys() - peers.keys():
                self._each.pop(gone).close()
            for name, peer in peers.items():
                if name not in self._each:
                    key, server_key = (None, None) if peer.is_near else self._keys
                    self._each[name] = Client(
                        peer.endpoint,
                        connect_timeout=peer.connect_timeout_s,
                        reconnect_timeout=peer.reconnect_timeout_s,
                        key=key,
                        server_key=server_key,
                        impersonate=self._impersonate,
                    )
            return tuple(self._each[name] for name in peers)

    # --- jobs ---------------------------------------------------------------------------------------------------

    def submit(
        self,
        model: str,
        inputs: object,
        *,
        block: bool = False,
        **options: Unpack[JobOptions],
    ) -> JobFuture:
        """Submits one job. Never blocks without `block`. Errors are the future's; only a closed client raises one here.

        `inputs` maps the signature's input names to arrays, Python numbers, strings or nested lists of them. A single
        input needs no name. The arrays are copied before this returns. `signature`: `serving_default` by default, or
        the only one. `outputs`: the names to return, all by default. `timeout`: in seconds, the pool's
        `default_timeout` by default. `priority`: from -100 to 100, higher runs first. `device`: run only there, by a
        name from `pool status`, such as "gpu:0", "cpu:1", a uuid or "slot:3"; 0 means "0". `version`: for a model with
        numbered versions, a number such as 3 or a label; the default is the newest of several, or any that is served.

        `block`: an overloaded pool, or a used-up credit, slows the caller down instead of failing the job. This waits
        within the job's timeout until the job is sent. If the pool refuses the job, the client sends it again later;
        meanwhile it sends no other blocking job of the model. `Overloaded` then means that there was no room in all
        that time. In a done-callback, `block` raises `InvalidState`.
        """
        return self._start(model, inputs, patient=block, wait=block, **options)

    def run(
        self,
        model: str,
        inputs: object,
        *,
        block: bool = False,
        **options: Unpack[JobOptions],
    ) -> JobResult:
        """`submit(…).result()`. An interrupt such as Ctrl-C cancels the job."""
        from pool.client.payload import encode_call  # numpy comes with the first tensor

        began = time.monotonic()
        request = request_for(model, **options)
        if self._spread is not None:
            self._check_open()
            return self._spread.run(request, partial(encode_call, model, inputs), began, patient=block)  # type: ignore[no-any-return]
        connection = self._connected()
        rows, payload = encode_call(model, inputs, connection.shared_memory)
        return connection.run(request, rows, payload, began, patient=block)  # type: ignore[no-any-return]

    def placement(self, model: str, *, timeout: float | None = None, device: str | int | None = None) -> "Placement":
        """On which device each node of a model runs: what `pool placement` shows. `device` chooses a worker.

        The worker runs each stateless signature once more, traced, as a job like others.
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
        """Submits one job per input, at a fraction of the cost of `submit`. Returns the futures in the same order.

        Small inputs of one shape are sent together; each fails, succeeds or is cancelled by itself. With `block`, jobs
        wait for room as in `submit`, but this call does not wait for them.
        """
        from pool.client.bulk.sender import submit_many  # numpy comes with the first tensor

        if self._closed:
            raise InvalidState(CLOSED)
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
    ) -> Iterator[JobResult]:
        """The results, in the order of the inputs. Reads at most `in_flight` inputs ahead: so many before it returns.

        Small inputs of one shape are copied as they are read, and sent together while the pool is busy; each fails or
        succeeds by itself. The fastest input is one array whose items are the inputs (`rows[:, None]`): whole stretches
        of it are sent as they lie. An overloaded pool slows this down, as with `block`. Raises the first failed job's
        error in its turn, and then reads no further input. Closing the iterator cancels the jobs in flight.
        """
        check_in_flight(in_flight)
        from pool.client.bulk.mapping import mapped  # numpy comes with the first tensor

        if self._closed:
            raise InvalidState(CLOSED)
        return mapped(self._connected, request_for(model, **options), inputs, in_flight)

    def session(
        self,
        model: str,
        *,
        private: bool = False,
        **options: Unpack[SessionOptions],
    ) -> RemoteSession:
        """Replaces a `tf.Session` with the model loaded: `session(model).run(fetches, feed_dict)`.

        `private`: the session has its own variables, as in the model's files, in one worker that keeps them. Otherwise
        all jobs and sessions share the model's variables. The other options are those of `submit`, for each run.
        """
        return RemoteSession(self, model, private=private, **options)

    def empty(self, shape: int | Sequence[int], dtype: "npt.DTypeLike" = "float32") -> "np.ndarray[Any, Any]":
        """An array for the inputs of a job, in the memory that this client shares with a pool on the same machine.

        Its values are undefined. `submit` does not copy it, or a view of it in C order. So don't write to it until the
        future has its result; after any other end of the future, never write to it again. The memory is reused when the
        array and its views are gone. If the pool lends no memory, or it is full, this is an ordinary array, which is
        copied when it is submitted. The first call waits for the pool, as long as for a connection.
        """
        from pool.client.payload import empty  # numpy comes with the first tensor

        if self._spread is None:
            self._connected().lent_memory(self._peer.connect_timeout_s)
        return empty(shape, dtype, self._lent())

    def _lent(self) -> "SharedMemory":
        """What is lent by now. A client of several pools can't know which of them will get what lies there."""
        return self._connected().shared_memory if self._spread is None else self._spread.memory

    def _start(
        self,
        model: str,
        inputs: object,
        *,
        patient: bool,
        wait: bool = False,
        **options: Unpack[JobOptions],
    ) -> JobFuture:
        """`submit`: a `patient` job waits for room; the caller waits with it only if `wait` is set."""
        from pool.client.payload import encode_call  # numpy comes with the first tensor

        began = time.monotonic()
        if self._closed:
            raise InvalidState(CLOSED)
        try:
            request = request_for(model, **options)
            connection = self._connected(request)
            rows, payload = encode_call(model, inputs, connection.shared_memory)
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
        """`submit` for inputs that are already encoded, such as those of a quarantined job (`pool.kept.load`)."""
        # The I/O thread needs it for the answer. A child forked during that import would wait for ever.
        import_module("pool.client.payload")
        began = time.monotonic()
        try:
            request = request_for(model, **options)
            connection = self._connected(request)
        except PoolError as error:
            return _refused(error)
        return connection.submit(request, rows, payload, began)

    def _replicas(self, model: str, version: str | int | None) -> int:
        return super()._replicas(model, version) if self._spread is None else self._spread.replicas(model)

    def _check_thread(self) -> None:
        """Raises `InvalidState` if waiting for an answer would never end."""
        if (connection := self._connection) is not None:
            connection.driver.check_wait()

    # --- questions ----------------------------------------------------------------------------------------------

    def _ask(self, kind: Any, what: str, about: str = "", within_s: float = math.inf) -> Any:
        answer = self._connected().ask(what, about, min(within_s, ASK_TIMEOUT_S + self._peer.longest_timeout_s))
        return self._read(kind, what, answer)

    def _read(self, kind: Any, what: str, answer: bytes) -> Any:
        try:
            return unpack(kind, answer, LARGEST_ANSWER_BYTES)
        except BadFrame as error:
            raise Incompatible(f"the pool's answer to {what!r} cannot be read: {error}") from None

    def is_ready(self, model: str | None = None) -> bool:
        """Whether the pool, or one of several, can serve, or this model of it: whether `pool health` exits with 0.

        Raises `ModelNotFound` for a model that no pool has.
        """
        if self._spread is None:
            return super().is_ready(model)
        check_model(model)
        return not none_ready(self._of_each("status", ANSWERS_S), len(self._spread.peers), model)

    def models(self) -> "tuple[Model, ...]":
        """What `pool models` shows: each model with its signatures.

        Of several pools, those of all that are there; one that several have, as one of them tells it.
        """
        if self._spread is None:
            return super().models()
        told = self._of_each("models", ASK_TIMEOUT_S)
        failed = [each for each in told.values() if isinstance(each, PoolError)]
        if len(failed) == len(told):
            away = PoolUnreachable("; ".join(map(str, failed)) or CLOSED)
            raise next((each for each in failed if not isinstance(each, PoolUnreachable)), away)
        found: dict[str, Model] = {}
        for models in told.values():
            for model in () if isinstance(models, PoolError) else models:
                if model.name not in found or not found[model.name].ready_slots:
                    found[model.name] = model
        return tuple(found.values())

    def _of_each(self, what: str, within_s: float) -> "dict[str, Any]":
        """What each pool answers to "status", "metrics" or "models", or the `PoolError` instead, by what it is called.

        All are asked at once, and none is waited for after `within_s`. A client of one pool calls it "", and waits for
        its answer as long as for any.
        """
        if self._spread is None:
            try:
                return {"": getattr(self, what)()}
            except PoolError as error:
                return {"": error}
        self._check_open()
        kinds: dict[str, Any] = {
            "status": records().Status,
            "metrics": records().Metrics,
            "models": tuple[records().Model, ...],  # type: ignore[misc]  # a class at run time
        }
        peers = self._spread.peers
        answers = self._spread.answers(what, within_s)
        return {
            peer.label: self._read_one(kinds[what], what, answers[key]) for key, peer in peers.items() if key in answers
        }

    def _read_one(self, kind: Any, what: str, answer: bytes | PoolError) -> Any:
        try:
            return answer if isinstance(answer, PoolError) else self._read(kind, what, answer)
        except Incompatible as error:
            return error

    def _until_ready(self, model: str | None, timeout_s: float) -> Iterator[str]:
        spread = self._spread
        if spread is None:
            return super()._until_ready(model, timeout_s)
        check_model(model)
        check_timeout(timeout_s)
        return until_one_is_ready(partial(self._of_each, "status"), lambda: len(spread.peers), model, timeout_s)

    # --- life ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Cancels what is outstanding. The client cannot be used afterwards."""
        with self._lock:
            self._closed = True
            connection, self._connection = self._connection, None
            each, self._each = self._each, {}
        if connection is not None:
            connection.close()
        for one in each.values():
            one.close()
        if self._discovery is not None:
            self._discovery.close()
        if self._spread is not None:
            self._spread.close()

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
        discovery: Following | None = getattr(self, "_discovery", None)
        if discovery is not None:
            discovery.release()
        spread: Spread | None = getattr(self, "_spread", None)
        if spread is not None:
            spread.release()

    def _connected(self, request: Request | None = None) -> "Connection":
        """For a job of this request. Raises `PoolUnreachable` if no connection can be made.

        `InvalidState` if the client is closed, or has several pools and it is for no job.
        """
        if self._spread is not None:
            self._check_open()
            if request is None:
                raise InvalidState(ASK_ONE.format(len(self._spread.peers)))
            return self._spread.connection(request)
        connection = self._connection
        if connection is not None and not connection.lost:
            return connection
        from pool.client.connection import Connection

        with self._lock:
            if self._closed:
                raise InvalidState(CLOSED)
            if self._connection is None or self._connection.lost:
                self._check_pool()
                self._connection = Connection(self._peer, self._spin_s)
            return self._connection

    def _home(self, model: str, *, private: bool) -> "Callable[[], Connection]":
        """As `_connected`, for the jobs of a session."""
        return self._connected if self._spread is None else self._spread.home(model, private=private)

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidState(CLOSED)

    def _check_pool(self) -> None:
        """Raises `PoolUnreachable` where no connection is to be made."""
        self._peer.check()

    def _replace(self, endpoints: Sequence[str] | Mapping[str, str]) -> None:
        """Its pools are these from now on, by name if they have one. Others still answer what they have."""
        peers = self._named(endpoints) if isinstance(endpoints, Mapping) else self._peers_of(endpoints)
        with self._lock:
            self._check_open()
            former, self._connection = self._connection, None
            if self._spread is None:
                self._spread = _spread(peers, self._spin_s)
            else:
                self._spread.replace(peers)
        if former is not None:
            former.release()

    def _after_fork(self) -> None:
        self._lock = threading.Lock()  # another thread of the parent may have held it
        if self._connection is not None:
            _before_fork.append(self._connection)
            self._connection.abandon_after_fork()
            self._connection = None
        if self._spread is not None:
            _before_fork.extend(self._spread.abandon_after_fork())
        if self._discovery is not None:
            self._discovery.after_fork()


def _spread(peers: Sequence[Peer], spin_s: float) -> "Spread":
    from pool.client.spread import Spread  # most clients have one pool

    return Spread(peers, spin_s)


def _refused(error: PoolError) -> JobFuture:
    future = JobFuture()
    future.finish(error)
    return future


def _after_fork_in_child() -> None:
    for client in list(_live):
        try:
            client._after_fork()
        except Exception:  # the others need it too
            log.exception("a client could not be renewed after a fork")


def _close_all() -> None:
    for client in list(_live):
        client.close()


os.register_at_fork(after_in_child=_after_fork_in_child)
atexit.register(_close_all)
