"""A `RemoteSession`, awaited: `await client.session(model).run(fetches, feed_dict)`."""

import asyncio
import contextlib
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

if TYPE_CHECKING:
    from pool.client.client import Client

from pool.client.request import SessionOptions
from pool.client.session_calls import Answer, SessionCall, answer_of
from pool.client.session_steps import SessionSteps, awaited
from pool.errors import PoolError

__all__ = ["AsyncSession"]


class AsyncSession:
    """`RemoteSession` for asyncio. Made by `AsyncClient.session`. Safe for many tasks of one event loop.

    Cancelling a task cancels its run, as far as that has not begun: what began may have written variables.
    """

    def __init__(
        self,
        client: "Client",
        model: str,
        *,
        private: bool = False,
        **options: Unpack[SessionOptions],
    ) -> None:
        """As `Client.session` says. One that is `private` is opened at its first run, or by `async with`."""
        self._steps = SessionSteps(client, model, private=private, **options)
        self._opening = asyncio.Lock()

    async def run(
        self, fetches: object, feed_dict: object = None, options: object = None, run_metadata: Any = None
    ) -> Any:
        """See `RemoteSession.run`. Does not block the event loop: where the pool has no room, the task waits."""
        steps = self._steps.run(fetches, feed_dict, options, run_metadata)
        await self._open()
        return await awaited(steps, self._ask)

    async def _open(self) -> None:
        if self._steps.private is not None and not self._steps.private.is_open():
            async with self._opening:
                await awaited(self._steps.opening(), self._ask)

    async def _ask(self, call: SessionCall) -> Answer:
        future = self._steps.calls.start(call, wait=False)
        with contextlib.suppress(PoolError):  # `answer_of` says it in TensorFlow's words
            await asyncio.wrap_future(future)
        return answer_of(future)

    # --- life ---------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """What a private one has assigned is forgotten; the variables that others share stay as they are."""
        await asyncio.to_thread(self._steps.close)

    async def __aenter__(self) -> Self:
        self._steps.check_open()
        await self._open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
