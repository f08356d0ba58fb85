"""The processes of a gateway: a socket on which they all accept, and one that follows where one dies.

Settings come in, and when the gateway is to end. Out go processes that serve, lines of the log, and what
`pool status` shows of them. It never imports the gateway itself, never waits for one in the loop, and nothing that
becomes of one ends its parent, which is a pool or `pool gateway`.
"""

from pool.processes.gateways.gateways import Gateways
from pool.processes.gateways.listener import CannotListen, address_of, listen, not_installed

__all__ = ["CannotListen", "Gateways", "address_of", "listen", "not_installed"]
