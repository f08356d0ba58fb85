"""A request, whole, and a response; what a handler raises where it has none."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote_to_bytes

import numpy as np
from numpy.typing import NDArray

__all__ = ["Refused", "Request", "Response"]


NOTHING: NDArray[np.uint8] = np.empty(0, np.uint8)


@dataclass(slots=True)
class Request:
    """`method`: upper case. `path`: as it came, percent-encoded, without the query; `query`: likewise, "" if none.

    `headers`: names in lower case; values of a name that came twice are joined by ", ".
    `body`: all of it, decompressed, as uint8 [n]. A view of it that lies in shared memory travels without a copy.
    """

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: NDArray[np.uint8] = field(default_factory=lambda: NOTHING)

    def segments(self) -> list[str]:
        """The path's parts, each percent-decoded: "/v1/models/a%2Fb" → ["v1", "models", "a/b"].

        Raises `Refused` (400) for a part that is not UTF-8.
        """
        try:
            return [unquote_to_bytes(part).decode() for part in self.path.split("/")[1:]]
        except UnicodeDecodeError:
            raise Refused(400, f"the path {self.path!r:.200} is not UTF-8 text") from None


@dataclass(slots=True)
class Response:
    """`headers`: without Content-Length, Connection and Date, which the server adds.

    `body`: sent one after another; memoryviews are of bytes.
    """

    status: int
    headers: Sequence[tuple[str, str]] = ()
    body: Sequence[bytes | memoryview] = ()


class Refused(Exception):
    """A request that has no other answer than this status and text. Each protocol says it in its own form."""

    def __init__(self, status: int, text: str, retry_after_s: float | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.retry_after_s = retry_after_s
