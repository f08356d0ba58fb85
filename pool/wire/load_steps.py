"""Which model a worker is at on its way to READY, as it writes it into its link before each step.

What is in the link outlives the worker, so the pool knows whatever became of it: a load that ends the process, too.
"""

from dataclasses import dataclass

__all__ = ["LONGEST_STEP", "LoadStep"]

LONGEST_STEP = 4096  # bytes; a link has packets, and one that is longer is cut

_FILES, _HANDLER, _NONE = b"f", b"h", b"-"  # never an empty packet, which would be the end


@dataclass(frozen=True, slots=True)
class LoadStep:
    """`model` is "" between models. `of_files`: it is what the model's files decide, and not its handler."""

    model: str = ""
    of_files: bool = False

    def pack(self) -> bytes:
        kind = _NONE if not self.model else _FILES if self.of_files else _HANDLER
        return kind + self.model.encode()

    @classmethod
    def unpack(cls, packet: bytes) -> "LoadStep":
        """Whatever a worker has written: what is no step is of no model."""
        if packet[:1] not in (_FILES, _HANDLER):
            return cls()
        return cls(packet[1:].decode(errors="replace"), packet[:1] == _FILES)
