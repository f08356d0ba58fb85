"""HTTP/1.1 on the server's side: bytes come in, requests go to one handler, its responses go out as bytes.

Large bodies are received where the caller of the handler wants them: in shared memory. Knows no model and no job.
"""

from pool.gateway.http.message import Refused, Request, Response

__all__ = ["Refused", "Request", "Response"]
