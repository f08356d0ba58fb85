"""Ctrl-C, or what else is to happen, at one line of the client's own modules."""

import gc
import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from pool.client import futures, shared_memory, spans

FOLDER = os.path.dirname(futures.__file__)
OTHERS = {shared_memory.__file__, spans.__file__}


class AtLine:
    """A trace that does something at one line of a call in this thread, and counts the lines."""

    def __init__(self, line: int, act: Callable[[], None]) -> None:
        self.passed = 0
        self.where = ""
        self._line = line
        self._act = act

    def __enter__(self) -> "AtLine":
        gc.disable()  # a client that another test dropped would be closed at one of these lines
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        gc.enable()

    def _call(self, frame: FrameType, _event: str, _argument: object) -> Any:
        name = frame.f_code.co_filename
        if os.path.dirname(name) != FOLDER or name in OTHERS:
            return None
        return self._look

    def _look(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "exception" and isinstance(argument, tuple) and argument[0] is KeyboardInterrupt:
            sys.settrace(None)  # that of a test's own Ctrl-C: one is enough
            return None
        if event == "line":
            self.passed += 1
            if self.passed == self._line:
                self.where = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
                sys.settrace(None)
                self._act()
        return self._look


def interrupt() -> None:
    raise KeyboardInterrupt
