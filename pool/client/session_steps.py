"""What a session does, step by step: each step is a call, and whoever goes through them waits for its answer.

run ─┬─► RUN ─┬─► the values
     │        └─ it would write variables ─► WRITING_RUN ─► the values    (the next time without asking)
     └─ private ─► OPEN, once ─► PRIVATE_RUN in the same worker ─► the values
"""

from collections.abc import Awaitable, Callable, Generator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, Unpack

if TYPE_CHECKING:
    from pool.client.client import Client

from pool.client.fetches import Fetches, flat_feeds
from pool.client.private_session import PrivateSession
from pool.client.request import RunOptions
from pool.client.session_calls import Answer, InvalidValue, SessionCall, SessionCalls
from pool.errors import PoolError
from pool.wire import session_runs as wire

__all__ = ["SessionSteps", "Steps", "awaited", "run_options", "waited"]

MOST_WRITERS = 1024
MOST_TRACED = 3  # FULL_TRACE

T = TypeVar("T")
Steps: TypeAlias = Generator[SessionCall, Answer, T]


class SessionSteps:
    """Safe for many threads, as long as only one at a time goes through `opening`."""

    def __init__(
        self,
        client: "Client",
        model: str,
        *,
        private: bool,
        timeout: float | None = None,
        device: str | int | None = None,
        **options: Unpack[RunOptions],
    ) -> None:
        """As `Client.session` says."""
        self.calls = SessionCalls(client, model, private=private, **options)
        self.private = PrivateSession(self.calls, device) if private else None
        self._timeout = timeout
        self._device = device
        self._writers: dict[tuple[tuple[str, ...], tuple[str, ...]], None] = {}
        self._closed = False

    def check_open(self) -> None:
        if self._closed:
            raise RuntimeError("Attempted to use a closed Session.")

    def close(self) -> None:
        """What a private one has assigned is forgotten. May wait for a moment."""
        self._closed = True
        if self.private is not None:
            self.private.close()

    def opening(self) -> Steps[None]:
        """Opens a private session that is not open; there is one."""
        assert self.private is not None
        return self.private.opening(self._timeout)

    def run(self, fetches: object, feed_dict: object, options: object, run_metadata: Any) -> Steps[Any]:
        """See `RemoteSession.run`, of which this raises all that is no fault of the model's at once.

        REQUIRES that a private session is open by the time of the first step.
        """
        self.check_open()
        wanted = Fetches(fetches)
        feeds = dict(flat_feeds(feed_dict))
        timeout, trace_level = run_options(options)
        for name in (*wanted.names, *feeds):
            if name.startswith(":"):
                raise InvalidValue(f"The name {name!r} refers to a Tensor which does not exist.")
        if trace_level and run_metadata is not None:
            feeds[wire.TRACE_LEVEL] = trace_level
        return self._run(wanted, feeds, self._timeout if timeout is None else timeout, run_metadata)

    def _run(
        self, wanted: Fetches, feeds: Mapping[str, object], timeout: float | None, run_metadata: Any
    ) -> Steps[Any]:
        if not wanted.names:
            return wanted.built({})
        answer = yield from self._answer(wanted.names, feeds, timeout)
        if run_metadata is not None and wire.RUN_METADATA in answer:
            run_metadata.ParseFromString(answer[wire.RUN_METADATA].item())
        # TensorFlow gives scalars, not arrays without axes; but what is fed, as the array that it has become.
        return wanted.built(
            {name: array if array.ndim or name in feeds else array[()] for name, array in answer.items()}
        )

    def _answer(
        self, names: tuple[str, ...], inputs: Mapping[str, object], timeout: float | None
    ) -> Steps[dict[str, Any]]:
        if self.private is not None:
            return (yield from self.private.run(names, inputs, timeout))
        asked = names, tuple(inputs)
        if asked not in self._writers:
            answer, _ = yield SessionCall(wire.RUN, names, inputs, timeout, self._device)
            if wire.WRITES not in answer:
                return answer
            if len(self._writers) < MOST_WRITERS:
                self._writers[asked] = None
        answer, _ = yield SessionCall(wire.WRITING_RUN, names, inputs, timeout, self._device)
        return answer


async def awaited(steps: Steps[T], ask: Callable[[SessionCall], Awaitable[Answer]]) -> T:
    """Goes through the steps in this task."""
    resume: Callable[[], SessionCall] = partial(next, steps)
    while True:
        try:
            call = resume()
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # it is the generator's
        try:
            answer = await ask(call)
        except PoolError as error:
            resume = partial(steps.throw, error)
        else:
            resume = partial(steps.send, answer)


def waited(steps: Steps[T], ask: Callable[[SessionCall], Answer]) -> T:
    """Goes through the steps in this thread."""

    async def asked(call: SessionCall) -> Answer:
        return ask(call)

    try:
        awaited(steps, asked).send(None)  # nothing in it is ever waited for, so it runs to its end
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # as above
    raise AssertionError("it waited")


def run_options(options: object) -> tuple[float | None, int]:
    """The timeout in seconds, None where none is set, and the trace level.

    `options` is None, an object with the attributes of `tf.RunOptions`, or a mapping of them. Raises `TypeError` for
    anything else, and `ValueError` for what is no time and no level.
    """
    if options is None:
        return None, 0
    if isinstance(options, Mapping):
        unknown = options.keys() - {"timeout_in_ms", "trace_level"}
        if unknown:
            raise ValueError(
                f"options has {sorted(map(str, unknown))}; only timeout_in_ms and trace_level are supported"
            )
        timeout_ms, level = options.get("timeout_in_ms", 0), options.get("trace_level", 0)
    elif hasattr(options, "timeout_in_ms") or hasattr(options, "trace_level"):
        timeout_ms, level = getattr(options, "timeout_in_ms", 0), getattr(options, "trace_level", 0)
    else:
        raise TypeError(
            f"`options` must be like tf.RunOptions or a mapping, not the {type(options).__name__} {options}"
        )
    if isinstance(timeout_ms, bool) or not isinstance(timeout_ms, int | float) or not timeout_ms >= 0:
        raise ValueError(f"timeout_in_ms is {timeout_ms!r}; give milliseconds, or 0 for none")
    if isinstance(level, bool) or not isinstance(level, int) or not 0 <= level <= MOST_TRACED:
        raise ValueError(f"trace_level is {level!r}; give a number from 0 to {MOST_TRACED}")
    return (timeout_ms / 1000 if timeout_ms else None), level
