"""gRPC: the server, what every call passes before its service has it, and how it is refused."""

import asyncio
import logging
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from pool.door import protos
from pool.door.door import FAILED, HEADERS, STATUS, Door, Refused
from pool.door.http import MOST_HELD
from pool.errors import DeadlineExceeded, InvalidConfig, InvalidInput, Overloaded, PoolError

OPEN = frozenset(("Check", "ServerLive", "ServerReady"))  # load balancers have no token, and learn nothing here
MOST_CALLS, MOST_STREAMS = 4096, 256  # at a time, and of one connection: who reads no answers keeps their places
# gRPC tells the size of a message when all of it is there. So beside what is held, messages on their way may have
# MOST_SLOW × max_body, and what the network brings in QUICK_S. Answers that nobody reads count for nothing.
MOST_SLOW, QUICK_S, MESSAGE_S = 64, 1.0, 300.0  # calls whose message takes longer; how long it, or a stream, may take
MOST_TEXT = 2000  # bytes: it travels in a header, where each may take three, and clients take 8 KiB
DRAIN_S = 10

log = logging.getLogger("pool.door")


async def serve(door: Door, objects: Iterable[Any], stopping: asyncio.Event) -> None:
    """Each object has its `SERVICES`, and their methods in small letters. Raises `InvalidConfig`."""
    settings = door.settings
    options = [
        ("grpc.so_reuseport", 0),  # or a second door at the address would get some of the calls
        ("grpc.max_receive_message_length", min(settings.max_body, (1 << 31) - 1)),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_concurrent_streams", MOST_STREAMS),
        ("grpc.http.overload_protection", 0),  # it would refuse calls of honest clients that come all at once
    ]
    server = grpc.aio.server(options=options, maximum_concurrent_rpcs=MOST_CALLS)
    server.add_generic_rpc_handlers([calls := Calls(door, objects)])
    try:
        if settings.certificate is None or settings.certificate_key is None:
            server.add_insecure_port(settings.grpc)
        else:
            pair = Path(settings.certificate_key).read_bytes(), Path(settings.certificate).read_bytes()
            server.add_secure_port(settings.grpc, grpc.ssl_server_credentials([pair]))
    except (OSError, RuntimeError):
        raise InvalidConfig(f"door.grpc: {settings.grpc} is taken, or not of this machine; set another one") from None
    await server.start()
    log.info("listening at grpc%s://%s", "s" if settings.certificate else "", settings.grpc)
    watching = asyncio.create_task(calls.watch())
    await stopping.wait()
    await server.stop(DRAIN_S)
    watching.cancel()


class Calls(grpc.GenericRpcHandler):  # type: ignore[misc]
    """To gRPC all requests are streams: of another one it would read the message before it asks for a handler."""

    def __init__(self, door: Door, objects: Iterable[Any]) -> None:
        self._door, self._methods = door, {}
        self._coming: dict[Any, float] = {}  # tasks that wait for a message, and since when; the longest first
        for answering, service in ((each, name) for each in objects for name in each.SERVICES):
            for method in protos.POOL.FindServiceByName(service).methods:
                self._methods[f"/{service}/{method.name}"] = self._handler(answering, method)

    def service(self, details: Any) -> Any:
        """A call's handler, when its metadata has come."""
        HEADERS.set(details.invocation_metadata)
        tokens = self._door.tokens
        if tokens is not None and details.method.rpartition("/")[2] not in OPEN:
            shown = [value for name, value in details.invocation_metadata if name == "authorization"]
            if len(shown) != 1 or not tokens.knows(shown[0]):
                return grpc.stream_stream_rpc_method_handler(refuse)
        return self._methods.get(details.method)

    async def watch(self) -> None:
        """For ever: ends the calls whose message comes too slowly. Of many, those that came last stay."""
        while True:
            await asyncio.sleep(QUICK_S)
            now = time.monotonic()
            slow = [each for each in self._coming.items() if each[1] < now - QUICK_S]
            for left, (task, since) in enumerate(slow, 1 - len(slow)):
                if left <= -MOST_SLOW or since < now - MESSAGE_S:
                    task.cancel()

    def _handler(self, answering: Any, method: Any) -> Any:
        """Its method makes of a message another one, or its fields. Of a stream, it gets the bytes of each."""
        request, response = (protos.message(each.full_name) for each in (method.input_type, method.output_type))
        call = getattr(answering, re.sub("(?<!^)(?=[A-Z])", "_", method.name).lower())
        door, is_stream = self._door, method.client_streaming

        async def answer(_: Any, context: Any) -> Any:
            try:
                while (data := await self._message(context)) is not grpc.aio.EOF:
                    door.held_bytes += len(data)
                    try:
                        told = await call(data if is_stream else request.FromString(data), context)
                    finally:
                        door.held_bytes -= len(data)
                    if not is_stream:
                        return response(**told) if type(told) is dict else told
                    await context.write(told)
                if is_stream:
                    return None
                raise InvalidInput("there is no message")
            except Exception as error:
                refused = refusal(error)
            data = told = None  # gRPC keeps what is raised here, with this frame, until garbage is collected
            return await context.abort(*refused)

        kinds = grpc.stream_unary_rpc_method_handler, grpc.stream_stream_rpc_method_handler
        return kinds[is_stream](answer, None, response.SerializeToString)

    async def _message(self, context: Any) -> Any:
        """The next one's bytes, or EOF. Raises `Overloaded`, and `DeadlineExceeded` for who is slow or has gone."""
        self._coming[task := asyncio.current_task()] = time.monotonic()
        try:
            data = await context.read()
        except asyncio.CancelledError:
            raise DeadlineExceeded("the message comes too slowly") from None
        finally:
            del self._coming[task]
        if self._door.held_bytes + len(data) > MOST_HELD * self._door.settings.max_body:
            raise Overloaded("the door holds as many bytes of requests and answers as it may")
        return data


async def refuse(_: Any, context: Any) -> None:
    await context.abort(*refusal(Refused(401, "a token is needed: send the metadata authorization: Bearer TOKEN")))


def refusal(error: Exception) -> tuple[grpc.StatusCode, str]:
    code, text = FAILED[1], "the door failed at this request; its log says why"
    if isinstance(error, PoolError):
        code, text = STATUS.get(type(error), FAILED)[1], str(error)
    elif isinstance(error, Refused):
        codes = {401: grpc.StatusCode.UNAUTHENTICATED, 501: grpc.StatusCode.UNIMPLEMENTED}
        code, text = codes.get(error.status_code, code), error.detail
    elif isinstance(error, DecodeError):
        code, text = grpc.StatusCode.INVALID_ARGUMENT, "the request's bytes are no such message"
    else:
        log.error("gRPC", exc_info=error)
    return code, text.encode("utf-8", "replace")[:MOST_TEXT].decode("utf-8", "ignore")


def within(context: Any, timeout_s: float | None = None) -> float | None:
    """A job's timeout: what was asked for, and never beyond the caller's deadline."""
    left_s: float | None = context.time_remaining()
    return timeout_s if left_s is None else max(0.0, min(left_s, left_s if timeout_s is None else timeout_s))
