"""Bytes in JSON: `{"b64": TEXT}`, which stands for any string that is no text."""

import binascii
from base64 import b64encode
from typing import Any

from pool.gateway.http import Refused

__all__ = ["B64", "as_bytes", "as_text", "is_binary", "to_binary"]

B64 = "b64"


def is_binary(value: Any) -> bool:
    """Whether it is an object with this one key, and a text."""
    return type(value) is dict and len(value) == 1 and type(value.get(B64)) is str


def to_binary(value: bytes) -> dict[str, str]:
    return {B64: b64encode(value).decode()}


def as_bytes(value: Any) -> bytes:
    """Of a text its UTF-8, of an object what it stands for. REQUIRES one of both. Raises `Refused`.

    As in TensorFlow Serving, the padding may be missing, and white space counts for nothing.
    """
    if type(value) is str:
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise Refused(400, f"a text is not valid unicode: {value!r:.80}") from None
    text = value[B64]
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        pass
    bare = "".join(text.split()).replace(".", "=")
    try:
        return binascii.a2b_base64(bare if "=" in bare else bare + "=" * (-len(bare) % 4), strict_mode=True)
    except ValueError:
        raise Refused(400, f"the value of a {B64} is not base64: {text!r:.80}") from None


def as_text(value: Any, is_bytes: bool) -> Any:
    """An element of a tensor of strings, for JSON. `is_bytes`: as an object; what is no UTF-8 always is one."""
    if not isinstance(value, bytes):
        value = str(value).encode()
    if not is_bytes:
        try:
            return value.decode()
        except UnicodeDecodeError:
            pass
    return to_binary(value)
