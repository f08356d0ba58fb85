"""Crash reports: what is known of each worker that died or was killed, and of a fault of the pool's own.

Beats, batches and exits come in while they happen. Out goes a file for each death, and what `pool explain` reads of it.
It keeps no inputs, only names, dtypes and shapes, and never holds up the loop for the disk.
"""

from pool.recorder.fault_report import fault_report
from pool.recorder.last_events import DISPATCHED, LastEvents
from pool.recorder.recorder import Recorder
from pool.recorder.shelf import Shelf

__all__ = ["DISPATCHED", "LastEvents", "Recorder", "Shelf", "fault_report"]
