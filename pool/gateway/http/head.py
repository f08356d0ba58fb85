"""The head of a request: from its bytes to what follows it. httptools reads it; what two readers could read in two
ways is refused.
"""

from collections import OrderedDict
from dataclasses import dataclass

import httptools

from pool.gateway.http.message import Refused, Request

__all__ = ["Head", "HeadReader", "read_head"]

KEPT, KEPT_BYTES = 256, 2048
MALFORMED = "the request is not HTTP"


@dataclass(slots=True)
class Head:
    """`size_bytes`: of the body that follows, None for one in chunks."""

    request: Request
    size_bytes: int | None
    keeps_alive: bool
    expects_continue: bool
    is_old: bool
    """HTTP/1.0: a connection that stays open is the exception there, and has to be said."""

    def again(self) -> "Head":
        """For another request of the same words."""
        asked = self.request
        request = Request(asked.method, asked.path, asked.query, asked.headers)
        return Head(request, self.size_bytes, self.keeps_alive, self.expects_continue, self.is_old)


_known: OrderedDict[bytes, Head] = OrderedDict()


def read_head(head: bytes) -> tuple[Head, "HeadReader | None"]:
    """`head`: up to the empty line and with it. The reader is for a body in chunks. Raises `Refused`.

    Clients that keep their connection send the same head again and again: those of late are read once.
    """
    if (known := _known.get(head)) is not None:
        _known.move_to_end(head)
        return known.again(), None
    reader = HeadReader()
    found = reader.read(head)
    if found.size_bytes is None:
        return found, reader
    if len(head) <= KEPT_BYTES:
        _known[head] = found.again()
        if len(_known) > KEPT:
            _known.popitem(last=False)
    return found, None


class HeadReader:
    """Of one request. After `read` it reads a body in chunks, if there is one."""

    __slots__ = ("_body", "_headers", "_heads", "_keeps_alive", "_most_bytes", "_parser", "_target", "is_complete")

    def __init__(self) -> None:
        self._headers: dict[str, str] = {}
        self._target = b""
        self._heads = 0
        self._keeps_alive = False
        self._body = bytearray()
        self._most_bytes = 0
        self.is_complete = False
        self._parser = httptools.HttpRequestParser(self)

    def read(self, head: bytes) -> Head:
        """`head`: up to the empty line and with it. Raises `Refused`."""
        parser = self._parser
        try:
            parser.feed_data(head)
        except httptools.HttpParserUpgrade:
            pass  # which nobody has to follow
        except httptools.HttpParserError as error:
            raise Refused(400, f"{MALFORMED}: {error!s:.200}") from None
        headers, target = self._headers, self._target
        if self._heads != 1 or self._body:
            raise Refused(400, f"{MALFORMED}: its head has no end, or two")
        is_old = parser.get_http_version() == "1.0"
        if not is_old and "host" not in headers:
            raise Refused(400, "the request has no Host header")
        path, _, query = target.decode("latin-1").partition("?")
        if not path.startswith("/") and "://" in path:  # what proxies are sent: the host in it is the one that counts
            headers["host"], _, rest = path.split("://", 1)[1].partition("/")
            path = f"/{rest}"
        size_bytes: int | None = 0
        if (coding := headers.get("transfer-encoding")) is not None:
            if coding.lower() != "chunked" or "content-length" in headers:
                raise Refused(400, "Transfer-Encoding is chunked, and without Content-Length, or not there at all")
            size_bytes = None
        elif (length := headers.get("content-length")) is not None:
            if not length.isascii() or not length.isdigit() or len(length) > 18:
                raise Refused(400, f"Content-Length is {length!r:.60}; give one number of bytes")
            size_bytes = int(length)
        expects = headers.get("expect", "").lower() == "100-continue" and not is_old
        method = parser.get_method().decode("latin-1")
        request = Request(method, path, query, headers)
        return Head(request, size_bytes, self._keeps_alive, expects, is_old)

    def read_chunks(self, data: bytes, most_bytes: int) -> bytearray | None:
        """The body, once it is whole. Raises `Refused`."""
        self._most_bytes = most_bytes
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass
        except httptools.HttpParserError as error:
            # What follows the last chunk is another request, or nothing that anybody would answer.
            if not self.is_complete:
                raise Refused(400, f"a chunk of the body is not well formed: {error!s:.200}") from None
        if len(self._body) > most_bytes:
            raise Refused(413, f"the body is larger than {most_bytes} bytes")
        return self._body if self.is_complete else None

    # --- what the parser calls ----------------------------------------------------------------------------------

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        known = self._headers.get(key)
        self._headers[key] = text if known is None else f"{known}, {text}"

    def on_headers_complete(self) -> None:
        self._heads += 1
        self._keeps_alive = self._parser.should_keep_alive()  # which the parser forgets

    def on_body(self, data: bytes) -> None:
        if not self.is_complete and len(self._body) <= self._most_bytes:
            self._body += data

    def on_message_complete(self) -> None:
        self.is_complete = True
