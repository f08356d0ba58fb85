"""By which other threads wake a loop."""

import contextlib
import os

__all__ = ["Doorbell"]


class Doorbell:
    """Any thread rings, and `fd` is readable until the loop hushes it. Many rings may be heard as one."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def ring(self) -> None:
        """Never blocks. What was done before is seen by whoever hushes it afterwards."""
        with contextlib.suppress(BlockingIOError):  # it has rung more often than can be counted
            os.eventfd_write(self.fd, 1)

    def hush(self) -> None:
        """Before the caller looks what it was rung for."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.fd)

    def __del__(self) -> None:
        """Not before: a thread that may ring still has it, and the number would be another's."""
        os.close(self.fd)
