"""The pool's process: what clients and workers say comes in, what the core wants done goes out. It never decides what.

Messages, deaths, signals and alarms come to one loop; the core is told of them, and its orders become messages, and
work for processes, disk and log. Nothing here schedules a job, or reads a tensor beyond its size.
"""

from pool.serve.service import BrokeDown, Service
from pool.serve.signal_pipe import SignalPipe, has_terminal
from pool.serve.slot_log import SlotLog
from pool.serve.status import without

__all__ = ["BrokeDown", "Service", "SignalPipe", "SlotLog", "has_terminal", "without"]
