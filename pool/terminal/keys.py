"""Single keys from a terminal, as they are pressed."""

import os
import select
import termios
import tty
from types import TracebackType
from typing import Self

__all__ = ["Keys"]

# What terminals send for them, in both of their modes.
_NAMES = {
    **{
        f"\x1b{middle}{end}": name
        for middle in "[O"
        for end, name in zip("ABCDHF", ("up", "down", "right", "left", "home", "end"), strict=True)
    },
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "\x1b[1~": "home",
    "\x1b[4~": "end",
    "\t": "tab",
    "\x1b": "escape",
}
LONGEST = 6  # of what one key sends


class Keys:
    """While it is entered, the terminal gives each key at once and shows none. Ctrl-C stays an interrupt."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._before = termios.tcgetattr(fd)
        self._pending = ""

    def __enter__(self) -> Self:
        tty.setcbreak(self._fd)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)

    def wait(self, timeout_s: float) -> str | None:
        """The next key: its character, or a name such as "up"; None if none comes in time.

        Raises `EOFError` when the terminal is gone.
        """
        if not self._pending:
            if not select.select([self._fd], [], [], timeout_s)[0]:
                return None
            self._pending = os.read(self._fd, 256).decode(errors="replace")
            if not self._pending:
                raise EOFError
        for length in range(min(LONGEST, len(self._pending)), 0, -1):
            if (sent := self._pending[:length]) in _NAMES:
                break
        else:
            sent = self._pending[:1]
        self._pending = self._pending[len(sent) :]
        return _NAMES.get(sent, sent)
