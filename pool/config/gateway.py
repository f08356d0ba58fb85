"""`[gateway]`: HTTP for the pool."""

import hashlib
import ipaddress
import os
import re
import ssl
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import (
    AfterValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    TypeAdapter,
    ValidationInfo,
    field_validator,
    model_validator,
)

from pool.config.quantities import Bytes, PositiveSeconds
from pool.config.section import AtKey, Section, SomePath, Texts, or_word, user_of
from pool.kept import WrongTokens, read_tokens
from pool.wire.gateway import GatewayLimits, GatewaySettings, Token

__all__ = ["GatewayAdvanced", "GatewaySection"]

_PLACE = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[0-9.]+):(\d{1,5})", re.ASCII)
_HOST = re.compile(r"[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]", re.ASCII)
_ORIGIN = re.compile(r"https?://[A-Za-z0-9_.\[\]:-]+", re.ASCII)
_MOST_PROCESSES = 64


@dataclass(frozen=True, slots=True)
class TokensFile:
    """What was in it when it was read: another content is another value."""

    path: str
    tokens: tuple[Token, ...]

    def __str__(self) -> str:
        """Without a digest of a token."""
        content = hashlib.sha256(repr(self.tokens).encode()).hexdigest()[:8]
        return f"{self.path} ({len(self.tokens)} {'token' if len(self.tokens) == 1 else 'tokens'}, {content})"


@dataclass(frozen=True, slots=True)
class CertificateFile:
    """`digest`: of what was in it when it was read: one that was renewed is another value."""

    path: str
    digest: str

    def __str__(self) -> str:
        return f"{self.path} ({self.digest})"


_path_of = TypeAdapter(SomePath)


def _certificate(value: object, info: ValidationInfo) -> CertificateFile | None:
    if value == "off":
        return None
    if isinstance(value, CertificateFile):
        return value
    path = _path(value, "gateway.pem", info)
    try:
        return CertificateFile(path, hashlib.sha256(Path(path).read_bytes()).hexdigest()[:8])
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}; write the path of a PEM file") from None


def _path(value: object, example: str, info: ValidationInfo) -> str:
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise ValueError(f'{value!r} is not a path; write "off", or the path of a file such as "{example}"')
    return _path_of.validate_python(value, context=info.context)


def _tokens(value: object, info: ValidationInfo) -> TokensFile | None:
    if value == "off":
        return None
    if isinstance(value, TokensFile):  # of a section that is made from another one
        return value
    path = _path(value, "tokens", info)
    try:
        return TokensFile(path, read_tokens(Path(path), user_of(info)))
    except WrongTokens as error:
        raise ValueError(str(error)) from None


_AsText = PlainSerializer(lambda file: None if file is None else str(file))


def _place(value: str) -> str:
    match = _PLACE.fullmatch(value)
    try:
        if match is None or int(match[2]) > 65535:
            raise ValueError
        address = ipaddress.ip_address(match[1].strip("[]"))
    except ValueError:
        right = 'an address in numbers and a port, such as "127.0.0.1:8000", "[::1]:8000" or "0.0.0.0:8000"'
        raise ValueError(f"{value!r} is not an address with a port; write {right}") from None
    return f"[{address}]:{match[2]}" if address.version == 6 else f"{address}:{match[2]}"


def _is_loopback(place: str) -> bool:
    return ipaddress.ip_address(place.rpartition(":")[0].strip("[]")).is_loopback


def _private(value: str, info: ValidationInfo) -> str:
    """A key that others could read is none any more."""
    try:
        about = os.stat(value)
    except OSError as error:
        raise ValueError(f"{value} cannot be read: {error.strerror}; write the path of a PEM file") from None
    if about.st_uid not in (user_of(info), 0) or about.st_mode & 0o007:
        mode = stat.S_IMODE(about.st_mode)
        raise ValueError(
            f"{value} belongs to uid {about.st_uid} and has mode {mode:04o}, so others can open it;"
            " make it the pool's user's or root's, and run chmod 0600"
        )
    return value


class GatewayAdvanced(Section):
    """What few gateways need. `max_json`: of what is parsed as JSON; `max_headers`: with the request line.

    `read_timeout`: from a request's first byte to its last; `idle_timeout`: between two requests of a connection.
    """

    max_json: Bytes = 16 * 2**20
    max_headers: Bytes = 16 * 2**10
    read_timeout: PositiveSeconds = 30.0
    idle_timeout: PositiveSeconds = 75.0


class GatewaySection(Section):
    """Where the gateway listens, who may use it, and how much one request may be.

    `tokens`: a file of names and digests, one of which each request has to show; "off", None once loaded: nobody is
    asked. `insecure`: other machines may come without. `certificate`, `key`: PEM files; "off", None: plain HTTP.
    `hosts`: names that a request may have as its Host, besides addresses. `origins`: of web pages that may ask.
    """

    listen: Annotated[str, AfterValidator(_place)] = "127.0.0.1:8000"
    processes: Annotated[int, Field(ge=1, le=_MOST_PROCESSES)] = 1
    tokens: Annotated[TokensFile | None, PlainValidator(_tokens), _AsText] = None
    insecure: bool = False
    certificate: Annotated[CertificateFile | None, PlainValidator(_certificate), _AsText] = None
    key: Annotated[Annotated[SomePath, AfterValidator(_private)] | None, or_word("off")] = None
    hosts: Texts = ()
    origins: Texts = ()
    repository_control: bool = False
    max_body: Bytes = 64 * 2**20
    max_connections: Annotated[int, Field(ge=1)] = 1000
    advanced: GatewayAdvanced = GatewayAdvanced()

    @field_validator("hosts")
    @classmethod
    def _are_hosts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for host in value:
            if _HOST.fullmatch(host) is None:
                raise ValueError(f'{host!r} is not the name of a host; write it without a port, such as "gpu.example"')
        return tuple(host.lower() for host in value)

    @field_validator("origins")
    @classmethod
    def _are_origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for origin in value:
            if _ORIGIN.fullmatch(origin) is None:
                raise ValueError(
                    f'{origin!r} is not an origin; write one without a path, such as "https://example.org"'
                )
        return tuple(origin.lower() for origin in value)

    @model_validator(mode="after")
    def _is_safe(self) -> "GatewaySection":
        if not _is_loopback(self.listen) and self.tokens is None and not self.insecure:
            raise AtKey(
                "listen",
                f"{self.listen!r} can be reached from other machines, and nobody is asked for a token; set `tokens`"
                " (`pool gateway token NAME` makes one), or write insecure = true",
            )
        for one, other in (("certificate", "key"), ("key", "certificate")):
            if getattr(self, one) is not None and getattr(self, other) is None:
                raise AtKey(one, f"is set without `{other}`; write both, or neither")
        if self.certificate is not None and self.key is not None:
            try:
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.certificate.path, self.key, _no_password)
            except OSError as error:  # of ssl, too
                why = error.strerror or error
                right = "write PEM files that belong together, and a key without a password"
                raise AtKey("certificate", f"{self.certificate.path} with the key {self.key}: {why}; {right}") from None
        return self

    def message(self, endpoints: tuple[str, ...], drain_timeout_s: float) -> GatewaySettings:
        """All of it, as it travels to the gateway's processes. `endpoints`: of the pools."""
        return GatewaySettings(
            endpoints,
            self.listen,
            processes=self.processes,
            tokens=None if self.tokens is None else self.tokens.tokens,
            certificate=None if self.certificate is None else self.certificate.path,
            key=self.key,
            hosts=self.hosts,
            origins=self.origins,
            repository_control=self.repository_control,
            limits=GatewayLimits(
                self.max_body,
                min(self.advanced.max_json, self.max_body),
                self.advanced.max_headers,
                self.max_connections,
                self.advanced.read_timeout,
                self.advanced.idle_timeout,
            ),
            drain_timeout_s=drain_timeout_s,
            renewed="" if self.certificate is None else self.certificate.digest,
        )


def _no_password() -> str:
    """Instead of a question at the terminal."""
    return ""
