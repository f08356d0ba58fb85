"""The results that one dispatch brings about: those of each client leave as one message."""

from dataclasses import dataclass, field

from pool.serve.payload import VIEW_BYTES, Payload
from pool.wire.client_messages import Result, Results
from pool.wire.hot import Buffer

__all__ = ["Answers", "Letter"]

MOST_JOBS = 256  # in one message: a header of some 20 KiB
MOST_BYTES = 1 << 20  # what is larger costs more than a message does, and is better begun to be read


@dataclass(slots=True)
class Letter(Results):
    """To one client. `size_bytes` of all but the first, which would be a message by itself."""

    results: list[Result]
    payload: list[Buffer] = field(default_factory=list)
    size_bytes: int = 0


class Answers(dict[bytes, Letter]):
    """By client, what is to leave."""

    def add(self, client: bytes, result: Result, pieces: tuple[Payload, ...]) -> bool:
        """Whether the client's letter is full, and is to leave at once."""
        letter = self.get(client)
        if letter is None:
            letter = self[client] = Letter([result])
            for piece in pieces:
                letter.payload += piece
            return False
        letter.results += (result,)
        for piece in pieces:
            letter.payload += piece
            letter.size_bytes += sum(map(len, piece)) + VIEW_BYTES * len(piece)
        return letter.size_bytes >= MOST_BYTES or len(letter.results) >= MOST_JOBS
