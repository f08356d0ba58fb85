"""The standard streams of a command that was started without some of them, as `pool check >&-` is."""

import os
import sys

__all__ = ["open_streams"]


def open_streams() -> None:
    """What is missing is /dev/null from now on.

    Otherwise the next file or socket would have its number, and whoever prints something would write there.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    # They are open for as long as the process is.
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
