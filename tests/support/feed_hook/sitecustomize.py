"""Counts how the lanes of a worker feed what lies in shared memory: as one view of it, or from a copy.

Python imports this first where $PYTHONPATH has its folder. The counts are a file of numbers of 8 bytes in the folder
that $FEEDS_INTO names, one a worker: batches of several parts that were fed as a view and as a copy, and rows likewise.
A view from where TensorFlow does not take it counts as a copy, for that makes one.
"""

import mmap
import os
import sys
from pathlib import Path
from typing import Any


def count_feeds(path: Path) -> None:
    import numpy as np

    from pool.wire.lent import ALIGNED, LENT_BYTES
    from workers.parts import Parts

    path.write_bytes(bytes(32))
    with path.open("r+b") as file:
        counts = memoryview(mmap.mmap(file.fileno(), 32)).cast("Q")
    plain = Parts.feeds

    def feeds(parts: Any, by_rows: bool, memory: Any) -> Any:
        given = plain(parts, by_rows, memory)
        for column, fed in zip(parts.columns, given.values(), strict=True):
            if fed.nbytes < LENT_BYTES or type(column[0]) is not memoryview:
                continue
            is_view = np.may_share_memory(fed, np.frombuffer(column[0], np.uint8)) and not fed.ctypes.data % ALIGNED
            counts[0 if is_view else 1] += len(column) > 1
            counts[2 if is_view else 3] += len(fed)
        return given

    Parts.feeds = feeds  # type: ignore[method-assign, assignment]  # any of them


if "FEEDS_INTO" in os.environ and "workers" in sys.orig_argv:
    count_feeds(Path(os.environ["FEEDS_INTO"], f"worker-{os.getpid()}"))
