"""What the lanes of a worker share, as they would a GPU: one run at a time, each for as long as it is told."""

import threading
import time

__all__ = ["Device"]


class Device:
    def __init__(self) -> None:
        self._lock = threading.Lock()

    def work(self, seconds: float) -> None:
        """Takes the device for so long, once whoever has it is done."""
        if seconds > 0:
            with self._lock:
                time.sleep(seconds)
