"""What clients ask the pool itself, until it is their turn.

An answer costs as much as many jobs do, so each turn of the loop gives one, and the clients take turns.
"""

from collections import OrderedDict, deque
from dataclasses import dataclass

from pool.serve.standing import Standing

__all__ = ["MOST_WAITING", "Question", "Questions"]

MOST_WAITING = 16  # of one client


@dataclass(frozen=True, slots=True)
class Question:
    """An ASK; answered with `Front.reply`. `standing`: of who asks."""

    client: bytes
    request: int
    what: str
    about: str
    standing: Standing


class Questions:
    def __init__(self) -> None:
        self._waiting: OrderedDict[bytes, deque[Question]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, question: Question) -> bool:
        """False where its client has asked too much that is not answered yet."""
        waiting = self._waiting.setdefault(question.client, deque())
        if len(waiting) >= MOST_WAITING:
            return False
        waiting.append(question)
        return True

    def next(self) -> Question | None:
        """Of the client whose turn it is."""
        if not self._waiting:
            return None
        client, waiting = next(iter(self._waiting.items()))
        question = waiting.popleft()
        if waiting:
            self._waiting.move_to_end(client)
        else:
            del self._waiting[client]
        return question

    def forget(self, client: bytes) -> None:
        """The client is gone."""
        self._waiting.pop(client, None)
