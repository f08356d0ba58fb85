"""Which signatures of a model may be joined, cut and padded: those whose rows are proven independent.

    a warm-up agreed ─► TRIED ─┬─ ENOUGH real jobs, run both ways, agreed ─► PROVEN
    nothing was tried ─────────┘  (ENOUGH_UNTRIED)                            │ a sample differs
    anything differed, or workers died of it ─────────────────────────────► DEPENDENT ◄──┘

What is known belongs to the identity of the files, and outlives workers. While workers with different files serve, all
of their proofs are needed.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from pool.wire.independence import Batching, Judgement, Trial

__all__ = ["ENOUGH", "ENOUGH_UNTRIED", "Independence", "Judged"]

ENOUGH = 16  # jobs that agreed, where made-up or recorded rows agreed before
ENOUGH_UNTRIED = 64  # the same, where nothing could be tried: they are all that speaks for it
MOST_SETS = 64  # of outputs that are asked for together, a signature: callers choose them
MOST_IDENTITIES = 8  # former files are forgotten first

Outputs = frozenset[str]
Judged = tuple[str, str, tuple[str, ...], Judgement]
"""Identity, signature, outputs, and what is known of them: as in the wire's ROWS_JUDGED."""


@dataclass(slots=True, eq=False)
class Proof:
    """Of one signature. `agreed`: how many jobs did, with rows of other values or not, by the outputs they asked for.

    `joined`: how many answers of joined, cut or padded rows were given.
    """

    trial: Trial = field(default_factory=Trial)
    agreed: dict[Outputs, int] = field(default_factory=dict)
    distinct: dict[Outputs, int] = field(default_factory=dict)
    differs: str = ""
    joined: int = 0

    def counts(self, outputs: Outputs) -> tuple[int, int]:
        """How many jobs agreed in these outputs, and how many have to."""
        if outputs <= frozenset(self.trial.outputs):
            return sum(count for names, count in self.agreed.items() if outputs <= names), ENOUGH
        return sum(count for names, count in self.distinct.items() if outputs <= names), ENOUGH_UNTRIED

    def proves(self, outputs: Outputs) -> bool:
        agreed, enough = self.counts(outputs)
        return not self.differs and agreed >= enough


class Independence:
    """Of one model."""

    def __init__(self, batching: Batching) -> None:
        self.batching = batching
        self.serving: frozenset[str] = frozenset()
        """The identities of the workers that serve it."""
        self._proofs: dict[str, dict[str, Proof]] = {}
        self._misshapen: dict[tuple[str, str], str] = {}

    def proof(self, identity: str, signature: str) -> Proof:
        known = self._proofs.get(identity)
        if known is None:
            known = self._proofs[identity] = {}
            for former in [each for each in self._proofs if each not in self.serving][: -MOST_IDENTITIES or None]:
                if former != identity:
                    del self._proofs[former]
        return known.setdefault(signature, Proof())

    def joins(self, signature: str, outputs: Collection[str]) -> bool:
        """Whether jobs that ask for these outputs may be joined, cut and padded."""
        if self.batching is Batching.OFF or any((each, signature) in self._misshapen for each in self.serving):
            return False
        if self.batching is Batching.ALWAYS:
            return True
        asked = frozenset(outputs)
        return bool(self.serving) and all(self.proof(each, signature).proves(asked) for each in self.serving)

    def refuted(self, signature: str) -> str:
        """Why answers of joined rows are not to be trusted, or ""."""
        for identity in self.serving:
            why = self._misshapen.get((identity, signature), "")
            if not why and self.batching is Batching.AUTO:
                why = self.proof(identity, signature).differs
            if why:
                return why
        return ""

    # --- what is found out --------------------------------------------------------------------------------------

    def tried(self, identity: str, signature: str, trial: Trial) -> Judged | None:
        """A worker has warmed up. What is to be told, if that is news."""
        proof = self.proof(identity, signature)
        if trial.differs:
            return self._refute(identity, signature, proof, f"when it warmed up, {trial.differs}")
        if (trial.outputs and not proof.trial.outputs) or not (proof.trial.outputs or proof.trial.untried):
            proof.trial = trial
        return None

    def compared(
        self, identity: str, signature: str, outputs: Collection[str], differs: str, distinct: bool
    ) -> Judged | None:
        """A worker has run a real job both ways. What is to be told, if that is news."""
        proof, asked = self.proof(identity, signature), frozenset(outputs)
        if differs:
            return self._refute(identity, signature, proof, differs)
        if asked not in proof.agreed and len(proof.agreed) >= MOST_SETS:
            return None
        before = proof.proves(asked)
        proof.agreed[asked] = proof.agreed.get(asked, 0) + 1
        proof.distinct[asked] = proof.distinct.get(asked, 0) + distinct
        if before or not proof.proves(asked):
            return None
        return (identity, signature, tuple(sorted(asked)), Judgement.PROVEN)

    def misshapen(self, signature: str, why: str) -> bool:
        """A run gave other rows than it was fed, whoever vouched for it. Whether that is news."""
        news = [each for each in self.serving or {""} if (each, signature) not in self._misshapen]
        self._misshapen.update({(identity, signature): why for identity in news})
        return bool(news)

    def _refute(self, identity: str, signature: str, proof: Proof, why: str) -> Judged | None:
        if proof.differs:
            return None
        proof.differs = why
        return (identity, signature, (), Judgement.DEPENDENT)

    # --- what is known ------------------------------------------------------------------------------------------

    def judged(self) -> Iterator[Judged]:
        """All that a worker of this model may need to know."""
        for identity, proofs in self._proofs.items():
            for signature, proof in proofs.items():
                if proof.differs:
                    yield (identity, signature, (), Judgement.DEPENDENT)
                    continue
                if proof.trial.outputs:
                    yield (identity, signature, proof.trial.outputs, Judgement.TRIED)
                for outputs in proof.agreed:
                    if proof.proves(outputs):
                        yield (identity, signature, tuple(sorted(outputs)), Judgement.PROVEN)

    def answered(self, signature: str, jobs: int) -> None:
        """So many answers of joined, cut or padded rows were given."""
        for identity in self.serving:
            self.proof(identity, signature).joined += jobs

    def joined(self, signature: str) -> int:
        """How many such answers were given."""
        return max((self.proof(identity, signature).joined for identity in self.serving), default=0)

    def told(self, signature: str, outputs: Collection[str]) -> str:
        """For people: whether its jobs run together, and why."""
        if self.batching is Batching.OFF:
            return 'job by job: batching = "off"'
        if why := self.refuted(signature):
            joined = self.joined(signature)
            given = f"; {joined} answers of joined rows were already sent" if joined else ""
            return f"job by job: its rows depend on each other: {why}{given}"
        if self.batching is Batching.ALWAYS:
            return 'in batches: batching = "always"'
        asked = frozenset(outputs)
        agreed, enough = min(
            (self.proof(identity, signature).counts(asked) for identity in self.serving),
            key=lambda counts: counts[0] - counts[1],
            default=(0, ENOUGH),
        )
        if self.serving and agreed >= enough:
            return f"in batches: its rows were independent in {agreed} jobs that ran both ways"
        untried = next((why for each in self.serving if (why := self.proof(each, signature).trial.untried)), "")
        after = f"; no trial ran at warm-up: {untried}" if untried else ""
        until = f"until {enough} jobs that run both ways show that its rows are independent ({agreed} did)"
        return f"job by job, {until}{after}"
