"""What a worker knows of the rows of its models' signatures.

What the pool has told, what the user vouches for, and which trials have ended workers.
"""

from collections.abc import Collection, Iterable, Mapping

from pool.wire.independence import Batching, Judgement, RowsJudged
from pool.wire.worker_messages import ModelSettings
from workers.trial_marks import TrialMarks, folder_of

__all__ = ["Known"]


class Known:
    """Written by the worker's main and control threads, each value at once; read by its lanes."""

    def __init__(self, settings: Iterable[ModelSettings], judged: Iterable[RowsJudged] = ()) -> None:
        given = list(settings)
        self._batching: Mapping[str, Batching] = {each.name: each.batching for each in given}
        self._most_rows: Mapping[str, int] = {each.name: max(each.batch_sizes, default=1) for each in given}
        self._folders = {each.name: folder_of(each.cache) for each in given}
        self._identities: dict[str, str] = {}
        self._judged: dict[tuple[str, str, str], dict[frozenset[str], Judgement]] = {}
        self.changes = 0
        """How often something was learned."""
        for each in judged:
            self.judge(each)

    def load(self, model: str, identity: str) -> None:
        """The model is loaded, from files that this names."""
        self._identities[model] = identity

    def judge(self, judged: RowsJudged) -> None:
        key = (judged.model, judged.identity, judged.signature)
        self._judged[key] = {**self._judged.get(key, {}), frozenset(judged.outputs): judged.judgement}
        self.changes += 1

    def most_rows(self, model: str) -> int:
        """How many rows of it run together at most."""
        return self._most_rows.get(model, 1)

    def identity(self, model: str) -> str:
        return self._identities.get(model, "")

    def marks(self, model: str) -> TrialMarks:
        """Of what is tried of the files that are loaded."""
        return TrialMarks(self._folders.get(model), f"{model}\0{self.identity(model)}")

    def judgement(self, model: str, signature: str, outputs: Collection[str]) -> Judgement | None:
        """What is known of these outputs; None where nothing is."""
        found = self._judged.get((model, self.identity(model), signature), {})
        asked = frozenset(outputs)
        judgements = {judgement for names, judgement in found.items() if asked <= names}
        if Judgement.DEPENDENT in found.values():
            return Judgement.DEPENDENT
        return Judgement.PROVEN if Judgement.PROVEN in judgements else next(iter(judgements), None)

    def is_open(self, model: str) -> bool:
        """Whether it is to be found out, as nobody has decided it."""
        return self._batching.get(model) is Batching.AUTO

    def joins(self, model: str, signature: str, outputs: Collection[str]) -> bool:
        """Whether rows of different jobs may be joined here, split or padded."""
        batching = self._batching.get(model, Batching.OFF)
        if batching is Batching.AUTO:
            return self.judgement(model, signature, outputs) is Judgement.PROVEN
        return batching is Batching.ALWAYS
