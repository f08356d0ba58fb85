"""The clients' own numbers. By its number a client is known and shown; where it is reached is told to nobody."""

from collections import OrderedDict

__all__ = ["Address", "Clients"]

MOST_RESTING = 4096

Address = tuple[int, bytes]  # which of the sockets, and the routing id there


class Clients:
    """A client's name is its number, as bytes. The numbers count from 1, and none is given twice."""

    def __init__(self) -> None:
        self._last = 0
        self.names: dict[Address, bytes] = {}
        """To be read: who is where."""
        self.addresses: dict[bytes, Address] = {}
        """To be read: where who is; who was forgotten is nowhere."""
        self.resting: OrderedDict[bytes, None] = OrderedDict()
        """To be read: who is known by name alone, until `name` hears of it again."""

    def name(self, address: Address) -> bytes:
        """The name of the client there; a new one if it has none."""
        client = self.names.get(address)
        if client is None:
            self._last += 1
            client = self.names[address] = self._last.to_bytes(8, "big")
            self.addresses[client] = address
        elif self.resting:
            self.resting.pop(client, None)
        return client

    def rest(self, client: bytes) -> None:
        """Nothing is known of it any more. If it speaks again before many others have come to rest, it is the same."""
        if client in self.addresses:
            self.resting[client] = None
            if len(self.resting) > MOST_RESTING:
                self.forget(next(iter(self.resting)))

    def forget(self, client: bytes) -> None:
        """It is gone."""
        self.resting.pop(client, None)
        address = self.addresses.pop(client, None)
        if address is not None:
            del self.names[address]
