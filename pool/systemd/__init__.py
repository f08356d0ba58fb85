"""The pool as a service of systemd.

The pool's readiness and state come in and go to the manager's socket; settings come in and a unit file goes out. It
never starts a service itself.
"""

from pool.systemd.notify import Notifier
from pool.systemd.unit import TEMPLATE_NAME, UNIT_NAME, unit

__all__ = ["TEMPLATE_NAME", "UNIT_NAME", "Notifier", "unit"]
