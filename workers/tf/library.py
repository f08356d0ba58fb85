"""The one place where TensorFlow is imported, so that it happens once and quietly.

TF_CPP_MIN_LOG_LEVEL does not reach what TensorFlow says while its shared objects are being loaded (measured
on 2.21: two libraries, each with its own copy of absl, print the same three lines at every level). What
remains is to drop those lines on their way to stderr. Everything else passes, and a process that dies
during the import takes no line with it: the filter is a process of its own.
"""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

__all__ = ["CUDA_NOISE", "IMPORT_NOISE", "CallableOptions", "parse_saved_model", "tf", "without_lines"]

IMPORT_NOISE = (
    r"^WARNING: All log messages before absl::InitializeLog\(\) is called"
    r"|^[IW]0000 .* (port|cudart_stub|cpu_feature_guard|computation_placer)\.cc:"
    r"|^E0000 .* Unable to register cu(FFT|DNN|BLAS) factory"
    r"|^To enable the following instructions: "
)
"""Says nothing about this machine that an operator could act on."""

CUDA_NOISE = r" failed call to cuInit: "
"""Said by a process to which no GPU was given, as intended."""

_DRAIN_S = 5.0


@contextmanager
def without_lines(pattern: str) -> Iterator[None]:
    """Drops lines that match (POSIX extended) `pattern` from this process's stderr while the block runs.

    Blocks at most a few seconds at its end. Where there is no `grep`, or no stderr, nothing is dropped.
    """
    try:
        stderr = os.dup(2)
    except OSError:
        yield
        return
    grep = None
    with suppress(OSError):
        # A group of its own: the terminal's Ctrl-C is for the pool to handle, and must not break our stderr.
        grep = subprocess.Popen(
            ["grep", "--line-buffered", "-avE", pattern],
            stdin=subprocess.PIPE,
            stdout=stderr,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )
    if grep is None or grep.stdin is None:
        os.close(stderr)
        yield
        return
    try:
        os.dup2(grep.stdin.fileno(), 2)
        yield
    finally:
        with suppress(OSError, ValueError):
            sys.stderr.flush()
        os.dup2(stderr, 2)
        os.close(stderr)
        grep.stdin.close()
        with suppress(subprocess.TimeoutExpired):  # what was started meanwhile may hold the pipe, and keeps it
            grep.wait(_DRAIN_S)


with without_lines(IMPORT_NOISE):
    import tensorflow as tf

    # TensorFlow has no public name for these two.
    from tensorflow.core.protobuf.config_pb2 import CallableOptions
    from tensorflow.python.saved_model.loader_impl import parse_saved_model


def _not_a_deprecation(record: logging.LogRecord) -> bool:
    # The loader and `Session` are TensorFlow 1's on purpose; a user of the pool cannot do anything about it.
    return "is deprecated and will be removed" not in str(record.msg)


tf.get_logger().addFilter(_not_a_deprecation)
