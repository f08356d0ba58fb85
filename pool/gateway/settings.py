"""The settings of this process, which its parent has written into a file in memory that it inherits."""

import os

from pool.wire.codec import unpack
from pool.wire.gateway import GatewaySettings

__all__ = ["read_settings"]


def read_settings(fd: int) -> GatewaySettings:
    """All there is, and closes it. Raises `BadFrame` for what a parent of this release has not written."""
    with os.fdopen(fd, "rb") as file:
        data = file.read()
    return unpack(GatewaySettings, data, most_bytes=len(data))
