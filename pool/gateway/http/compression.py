"""Bodies that came compressed, and answers that may leave so: gzip and deflate."""

import asyncio
import zlib
from collections.abc import Sequence

import numpy as np

from pool.gateway.http.message import Refused, Request, Response

__all__ = ["compressed", "decompressed"]

SMALL_BYTES = 32 << 10  # takes the event loop less than a millisecond
WINDOW = {"gzip": zlib.MAX_WBITS | 16, "x-gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}
WORTH_BYTES = 256


async def decompressed(request: Request, most_bytes: int) -> None:
    """Replaces the body. Raises `Refused` where it is not what its Content-Encoding says, or would be too large."""
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding in ("", "identity"):
        return
    if coding not in WINDOW:
        raise Refused(415, f"Content-Encoding is {coding!r:.60}; send gzip, deflate, or none")
    data = request.body.data
    if len(data) > SMALL_BYTES:
        body = await asyncio.to_thread(_inflated, data, WINDOW[coding], most_bytes)
    else:
        body = _inflated(data, WINDOW[coding], most_bytes)
    request.body = np.frombuffer(body, np.uint8)


def _inflated(data: memoryview, window: int, most_bytes: int) -> bytes:
    try:
        inflater = zlib.decompressobj(window)
        body = inflater.decompress(data, most_bytes + 1)
    except zlib.error as error:
        raise Refused(400, f"the body is not compressed as Content-Encoding says: {error}") from None
    if len(body) > most_bytes:
        raise Refused(413, f"the body would have more than {most_bytes} bytes once it is decompressed")
    if not inflater.eof or inflater.unused_data:
        raise Refused(400, "the compressed body has no end, or something behind it")
    return body


async def compressed(response: Response, accepted: str) -> Response:
    """As the Accept-Encoding says; the same response where nothing else is wanted, or it would not get smaller."""
    coding = _wanted(accepted)
    size_bytes = sum(map(len, response.body))
    if coding is None or size_bytes < WORTH_BYTES:
        return response
    if size_bytes > SMALL_BYTES:
        body = await asyncio.to_thread(_deflated, response.body, WINDOW[coding])
    else:
        body = _deflated(response.body, WINDOW[coding])
    return Response(response.status, (*response.headers, ("Content-Encoding", coding)), (body,))


def _deflated(parts: Sequence[bytes | memoryview], window: int) -> bytes:
    deflater = zlib.compressobj(1, zlib.DEFLATED, window)
    return b"".join([*map(deflater.compress, parts), deflater.flush()])


def _wanted(accepted: str) -> str | None:
    """The first of those with the highest q."""
    best, most = None, 0.0
    for each in accepted.lower().split(","):
        name, *parameters = [part.strip() for part in each.split(";")]
        weight = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    weight = float(parameter[2:])
                except ValueError:
                    weight = 0.0
        if name in ("gzip", "deflate") and weight > most:
            best, most = name, weight
    return best
