"""The flight recorder: what is known of each worker that died or was killed, kept for whoever asks why."""

from pool.recorder.recorder import Recorder
from pool.recorder.shelf import Shelf

__all__ = ["Recorder", "Shelf"]
