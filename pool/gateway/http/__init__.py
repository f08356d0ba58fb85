"""HTTP/1.1 on the server's side: bytes come in, requests go to one handler, its responses go out as bytes.

Large bodies are received where the caller of the handler wants them: in shared memory. It never knows a model or a job.
"""

from pool.gateway.http.compression import compressed, decompressed
from pool.gateway.http.connection import Handler
from pool.gateway.http.limits import Limits
from pool.gateway.http.message import Refused, Request, Response
from pool.gateway.http.server import Server

__all__ = [
    "Handler",
    "Limits",
    "Refused",
    "Request",
    "Response",
    "Server",
    "compressed",
    "decompressed",
]
