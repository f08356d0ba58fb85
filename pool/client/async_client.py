"""The client for asyncio."""

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import numpy as np

from pool.client.client import Client

__all__ = ["AsyncClient"]


class AsyncClient:
    """`Client`, awaited. Cancelling the task cancels the job."""

    def __init__(self, endpoint: str | None = None, *, connect_timeout: float = 5.0) -> None:
        self._client = Client(endpoint, connect_timeout=connect_timeout)

    async def submit(
        self,
        model: str,
        inputs: object,
        *,
        signature: str | None = None,
        outputs: Sequence[str] | None = None,
        timeout: float | None = None,
    ) -> "dict[str, np.ndarray[Any, Any]]":
        """The result of one job; raises what `Client.submit`'s future would."""
        future = self._client.submit(model, inputs, signature=signature, outputs=outputs, timeout=timeout)
        return await asyncio.wrap_future(future)

    async def status(self) -> dict[str, Any]:
        return await asyncio.to_thread(self._client.status)

    async def models(self) -> list[dict[str, Any]]:
        return await asyncio.to_thread(self._client.models)

    async def close(self) -> None:
        await asyncio.to_thread(self._client.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
