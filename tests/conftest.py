"""What all tests share: a machine, and pools to start, which are gone when their test is."""

import signal

for _number in (signal.SIGINT, signal.SIGHUP):
    signal.signal(_number, signal.SIG_DFL if _number != signal.SIGINT else signal.default_int_handler)

pytest_plugins = ["support.machine", "support.pools"]
