"""Keeps what is known of each model's rows up to date, and tells workers and people what is new.

a slot is READY ─────────► its warm-up's trials count, it is told what is known of its models
ROWS_COMPARED ───────────► a job agreed, or joining ends
"""

from collections.abc import Mapping, Sequence

from pool.core import actions as do
from pool.core import events as told
from pool.core.fleet import Slot, SlotState
from pool.core.orders import Orders
from pool.core.queue.independence import Judged
from pool.core.queue.models import Model
from pool.wire.independence import Judgement, RowsJudged

__all__ = ["Joining"]

MOST_TOLD_BYTES = 1 << 20  # in a WELCOME, which is 4 MiB at most and has the models' settings too
JUDGED_BYTES = 64  # beside its texts


class Joining:
    """It appends to `orders`."""

    def __init__(self, slots: Sequence[Slot], models: Mapping[str, Model], orders: Orders) -> None:
        self._slots = slots
        self._models = models
        self._orders = orders

    def judged(self, slot: Slot) -> tuple[RowsJudged, ...]:
        """What a new worker of the slot is told before it loads: what it can read, of the files that serve first.

        Names come from workers, and one that lies may make them as long as a message; what is left out here is found
        out anew.
        """
        told, left = [], MOST_TOLD_BYTES
        for judged in self._known(slot):
            size_bytes = _size_bytes(judged)
            if size_bytes <= left:
                left -= size_bytes
                told.append(judged)
        return tuple(told)

    def _known(self, slot: Slot) -> list[RowsJudged]:
        known: list[RowsJudged] = []
        for model in (self._models[name] for name in slot.planned if name in self._models):
            rows = model.independence
            judged = sorted(rows.judged(), key=lambda each: each[0] not in rows.serving)
            known += [RowsJudged(model.name, *each) for each in judged]
        return known

    def changed(self, slot: Slot) -> None:
        """The slot is READY, or is no more."""
        ready = slot.state is SlotState.READY
        for name in slot.models:
            model = self._models.get(name)
            if model is None:
                continue
            serving = [each for each in self._slots if each.state is SlotState.READY and name in each.worker.loaded]
            model.serve(frozenset(each.worker.loaded[name].identity for each in serving))
            if ready:
                info = slot.worker.loaded[name]
                model.loaded(info)
                for signature, trial in info.trials.items():
                    found = model.independence.tried(info.identity, signature, trial)
                    self._news(model, info.identity, signature, found)
        if ready:
            for judged in self._known(slot):
                if judged.judgement is not Judgement.TRIED:
                    self._orders.append(do.JudgeRows(slot.number, slot.worker.incarnation, judged))

    def compared(self, slot: Slot, event: told.WorkerCompared) -> Model | None:
        """A worker compared; the model of which a signature is not joined any more, if that is what came of it."""
        compared = event.compared
        model, info = self._models.get(compared.model), slot.worker.loaded.get(compared.model)
        if model is None or info is None or info.identity != compared.identity:
            return None
        signature = info.signatures.get(compared.signature)
        if signature is None or not signature.outputs.keys() >= set(compared.outputs):
            return None
        found = model.independence.compared(
            compared.identity, compared.signature, compared.outputs, compared.differs, compared.distinct
        )
        return self._news(model, compared.identity, compared.signature, found)

    def _news(self, model: Model, identity: str, signature: str, judged: Judged | None) -> Model | None:
        if judged is None:
            return None
        model.judged_anew()
        news = RowsJudged(model.name, *judged)
        for slot in self._slots:
            info = slot.worker.loaded.get(model.name)
            if slot.state is SlotState.READY and info is not None and info.identity == identity:
                self._orders.append(do.JudgeRows(slot.number, slot.worker.incarnation, news))
        if news.judgement is not Judgement.DEPENDENT:
            return None
        proof = model.independence.proof(identity, signature)
        text = (
            f"model {model.name}, signature {signature}: its jobs run one by one, because its rows"
            " depend on each other: "
        )
        given = f"; {proof.joined} answers of joined rows were already sent" if proof.joined else ""
        self._orders.append(do.Notice(f"{text}{proof.differs}{given}"))
        return model


def _size_bytes(judged: RowsJudged) -> int:
    """On the wire, at most."""
    texts = (judged.model, judged.identity, judged.signature, *judged.outputs)
    return JUDGED_BYTES + sum(len(text.encode(errors="replace")) + 5 for text in texts)
