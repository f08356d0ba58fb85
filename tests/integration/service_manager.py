"""The service manager's end of `sd_notify`, for a test."""

import socket
import threading
from pathlib import Path

from support.processes import eventually

__all__ = ["Manager"]


class Manager:
    """The socket at which systemd would listen."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self.heard: list[dict[str, str]] = []
        # All the time, as systemd does: the kernel keeps ten messages for one who does not read.
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        while message := self._socket.recv(65536).decode():
            self.heard.append(dict(line.split("=", 1) for line in message.splitlines()))

    def said(self, name: str) -> list[str]:
        """All values of one variable so far."""
        return [message[name] for message in list(self.heard) if name in message]

    def catch_up(self) -> None:
        """Until it has heard all that was said before."""
        before = len(self.said("CAUGHT_UP"))
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
            other.sendto(b"CAUGHT_UP=1", str(self.path))
        eventually(lambda: len(self.said("CAUGHT_UP")) > before)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)
        self._socket.close()
