"""gRPC: the server, what every call passes before its service has it, and how it is refused."""

import inspect
import logging
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from pool.door import protos
from pool.door.door import Door, Refused, status_of
from pool.door.http import MOST_HELD
from pool.errors import InvalidConfig, PoolError

OPEN = frozenset(("Check", "ServerLive", "ServerReady"))  # load balancers have no token, and learn nothing here
MOST_CALLS = 4096  # at a time
MOST_MESSAGE = (1 << 31) - 1
MOST_TEXT = 2000  # bytes: it travels in a header, where each may take three, and clients take 8 KiB
WORDS = re.compile("(?<!^)(?=[A-Z])")
CODES: Mapping[int, grpc.StatusCode] = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    404: grpc.StatusCode.NOT_FOUND,
    501: grpc.StatusCode.UNIMPLEMENTED,
    503: grpc.StatusCode.RESOURCE_EXHAUSTED,
}

log = logging.getLogger("pool.door")


def server(door: Door, *services: Any) -> grpc.aio.Server:
    """Bound, but not started. A service has its `NAME`, and its methods in lower case. Raises `InvalidConfig`."""
    settings = door.settings
    options = [
        ("grpc.so_reuseport", 0),  # or a second door at the address would get some of the calls
        ("grpc.max_receive_message_length", min(settings.max_body, MOST_MESSAGE)),
        ("grpc.max_send_message_length", -1),
    ]
    made = grpc.aio.server(options=options, maximum_concurrent_rpcs=MOST_CALLS)
    made.add_generic_rpc_handlers([_handler(door, each) for each in services])
    try:
        if settings.certificate is None or settings.certificate_key is None:
            made.add_insecure_port(settings.grpc)
        else:
            pair = Path(settings.certificate_key).read_bytes(), Path(settings.certificate).read_bytes()
            made.add_secure_port(settings.grpc, grpc.ssl_server_credentials([pair]))
    except (OSError, RuntimeError):
        raise InvalidConfig(f"door.grpc: {settings.grpc} is taken, or not of this machine; set another one") from None
    return made


def _handler(door: Door, service: Any) -> grpc.GenericRpcHandler:
    """Requests come as bytes, of which it is known how many they are."""
    handlers = {}
    for name, (request, response) in protos.methods(service.NAME).items():
        call = getattr(service, WORDS.sub("_", name).lower())
        if inspect.isasyncgenfunction(call):
            kind, answers = grpc.stream_stream_rpc_method_handler, _stream(door, name, call)
        else:
            kind, answers = grpc.unary_unary_rpc_method_handler, _unary(door, name, call, request, response)
        handlers[name] = kind(answers, response_serializer=response.SerializeToString)
    return grpc.method_handlers_generic_handler(service.NAME, handlers)


def _unary(door: Door, name: str, call: Any, request: Any, response: Any) -> Any:
    """`call` makes a message of a message, or the mapping of its fields."""

    async def answer(data: bytes, context: Any) -> Any:
        try:
            _admit(door, name, context)
            with received(door, request, data) as message:
                told = await call(message, context)
            return response(**told) if type(told) is dict else told
        except Exception as error:
            code, text = refusal(error)
        return await context.abort(code, text)

    return answer


def _stream(door: Door, name: str, call: Any) -> Any:
    async def answers(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[Any]:
        try:
            _admit(door, name, context)
        except Refused as error:
            await context.abort(*refusal(error))
        async for message in call(requests, context):
            yield message

    return answers


def _admit(door: Door, name: str, context: Any) -> None:
    if door.tokens is not None and name not in OPEN:
        shown = [value for key, value in context.invocation_metadata() if key == "authorization"]
        if len(shown) != 1 or door.tokens.name_of(str(shown[0])) is None:
            raise Refused(401, "a token is needed: send the metadata authorization: Bearer TOKEN")


@contextmanager
def received(door: Door, kind: Any, data: bytes) -> Iterator[Any]:
    """A message, which counts among what the door holds. Raises `Refused`."""
    if door.held_bytes + len(data) > MOST_HELD * door.settings.max_body:
        raise Refused(503, "the door holds as many bytes of requests as it may")
    door.held_bytes += len(data)
    try:
        yield kind.FromString(data)
    except DecodeError:
        raise Refused(400, f"the request is no {kind.DESCRIPTOR.full_name}") from None
    finally:
        door.held_bytes -= len(data)


def refusal(error: Exception) -> tuple[grpc.StatusCode, str]:
    if isinstance(error, PoolError):
        code, text = status_of(error)[1], str(error)
    elif isinstance(error, Refused):
        code, text = CODES[error.status], str(error)
    else:
        log.error("gRPC", exc_info=error)
        code, text = grpc.StatusCode.INTERNAL, "the door failed at this request; its log says why"
    return code, text.encode("utf-8", "replace")[:MOST_TEXT].decode("utf-8", "ignore")


def within(context: Any, timeout_s: float | None) -> float | None:
    """A job's timeout: what was asked for, and never beyond the caller's deadline."""
    left_s: float | None = context.time_remaining()
    return timeout_s if left_s is None else max(0.0, min(left_s, left_s if timeout_s is None else timeout_s))
