"""What a gateway's process is told: all of `[gateway]`, and the digests of the tokens.

    config.toml ─► `GatewaySection.message` ─► a descriptor that the process inherits ─► `pool.gateway.settings`

A digest never stands in a command line or in the environment, which others can read.
"""

from dataclasses import dataclass

__all__ = ["GatewayLimits", "GatewaySettings", "Token"]


@dataclass(frozen=True, slots=True)
class Token:
    """Who shows a token of this SHA-256 `digest` (32 bytes) is the client of this name. A name may have several."""

    name: str
    digest: bytes


@dataclass(frozen=True, slots=True)
class GatewayLimits:
    """`max_body_bytes`: of a request, also decompressed. `max_json_bytes`: of what is parsed as JSON.

    `max_headers_bytes`: of the request line and all headers. `max_connections`: of all gateway processes together.
    `read_timeout_s`: from a request's first byte to its last. `idle_timeout_s`: between two requests.
    """

    max_body_bytes: int = 64 << 20
    max_json_bytes: int = 16 << 20
    max_headers_bytes: int = 16 << 10
    max_connections: int = 1000
    read_timeout_s: float = 30.0
    idle_timeout_s: float = 75.0


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """`endpoints`: of the pools; (): as any client finds them. `listen`: the address and the port of the socket.

    `processes`: of this gateway, which share the socket and all limits; `number`: which of them this one is, from 0.
    `tokens`: one of them is needed; None: none is. `certificate`, `key`: paths of PEM files; None: plain HTTP.
    `hosts`: names besides the addresses of this machine that a request may have as its Host. `origins`: of web pages
    that may ask, such as "https://example.org".
    `renewed`: a digest of the certificate's file, so that another content is another value.
    `repository_control`: whether a client may load and unload models.
    `drain_timeout_s`: how long open requests may take when the gateway ends.
    """

    endpoints: tuple[str, ...]
    listen: str
    number: int = 0
    processes: int = 1
    tokens: tuple[Token, ...] | None = None
    certificate: str | None = None
    key: str | None = None
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    repository_control: bool = False
    limits: GatewayLimits = GatewayLimits()
    drain_timeout_s: float = 30.0
    renewed: str = ""

    @property
    def url(self) -> str:
        """Where it answers, such as "http://127.0.0.1:8000"."""
        return f"{'https' if self.certificate else 'http'}://{self.listen}"
