"""gRPC: the server, what every call passes before its service has it, and how it is refused."""

import asyncio
import logging
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from pool.door import protos
from pool.door.door import Door, Refused, status_of
from pool.errors import InvalidConfig, PoolError

OPEN = frozenset(("Check", "ServerLive", "ServerReady"))  # load balancers have no token, and learn nothing here
MOST_CALLS = 4096  # at a time
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
    ]
    server = grpc.aio.server(options=options, maximum_concurrent_rpcs=MOST_CALLS)
    server.add_generic_rpc_handlers([_handler(door, name, each) for each in objects for name in each.SERVICES])
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
    await stopping.wait()
    await server.stop(DRAIN_S)


def _handler(door: Door, service: str, answering: Any) -> grpc.GenericRpcHandler:
    kinds, handlers = (grpc.unary_unary_rpc_method_handler, grpc.stream_stream_rpc_method_handler), {}
    for method in protos.POOL.FindServiceByName(service).methods:
        request, response = (protos.message(each.full_name) for each in (method.input_type, method.output_type))
        call = getattr(answering, re.sub("(?<!^)(?=[A-Z])", "_", method.name).lower())
        parse = None if method.client_streaming else request.FromString
        answer = _answer(door, method.name not in OPEN, call, parse, response)
        handlers[method.name] = kinds[method.client_streaming](answer, None, response.SerializeToString)
    return grpc.method_handlers_generic_handler(service, handlers)


def _answer(door: Door, is_closed: bool, call: Any, parse: Any, response: Any) -> Any:
    """`call` makes of a message another one, or its fields. Of a stream of messages' bytes, it writes its own."""

    async def answer(came: Any, context: Any) -> Any:
        try:
            if door.tokens is not None and is_closed:
                shown = [value for name, value in context.invocation_metadata() if name == "authorization"]
                if len(shown) != 1 or door.tokens.name_of(str(shown[0])) is None:
                    raise Refused(401, "a token is needed: send the metadata authorization: Bearer TOKEN")
            told = await call(parse(came) if parse else came, context)
            return response(**told) if type(told) is dict else told
        except Exception as error:
            code, text = refusal(error)
        return await context.abort(code, text)

    return answer


def refusal(error: Exception) -> tuple[grpc.StatusCode, str]:
    code, text = grpc.StatusCode.INTERNAL, "the door failed at this request; its log says why"
    if isinstance(error, PoolError):
        code, text = status_of(error)[1], str(error)
    elif isinstance(error, Refused):
        codes = {401: grpc.StatusCode.UNAUTHENTICATED, 501: grpc.StatusCode.UNIMPLEMENTED}
        code, text = codes.get(error.status, code), str(error)
    elif isinstance(error, DecodeError):
        code, text = grpc.StatusCode.INVALID_ARGUMENT, "the request's bytes are no such message"
    else:
        log.error("gRPC", exc_info=error)
    return code, text.encode("utf-8", "replace")[:MOST_TEXT].decode("utf-8", "ignore")


def within(context: Any, timeout_s: float | None = None) -> float | None:
    """A job's timeout: what was asked for, and never beyond the caller's deadline."""
    left_s: float | None = context.time_remaining()
    return timeout_s if left_s is None else max(0.0, min(left_s, left_s if timeout_s is None else timeout_s))
