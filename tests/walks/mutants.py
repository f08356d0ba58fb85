"""The core with one promise broken: each mutant is a patch of one place, and some walk has to notice it.

A patch fits exactly once. Where the core is rebuilt, its mutants are written anew for the same promises.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MUTANTS", "Mutant"]


@dataclass(frozen=True, slots=True)
class Mutant:
    """`file` of `pool/core`, in which `old` becomes `new`. `killer`: the walk that noticed it when it was written."""

    name: str
    promise: str
    file: str
    old: str
    new: str
    killer: str = ""

    def applied_to(self, source: str) -> str:
        """REQUIRES that it fits once."""
        found = source.count(self.old)
        if found != 1:
            raise ValueError(f"{self.name}: the patch fits {found} times into {self.file}")
        return source.replace(self.old, self.new)


MUTANTS = (
    # --- a job is answered once, with what the model alone would have answered ---------------------------------------
    Mutant(
        "rows in the order of their arrival",
        "the pieces of a job are joined in the order of its rows",
        "settlement.py",
        "pieces[start] for start in sorted(pieces)",
        "pieces[start] for start in pieces",
        "program 0",
    ),
    Mutant(
        "answers swapped",
        "a result is never another job's",
        "settlement.py",
        "self._packs.heard(batch, payloads, _trusted",
        "self._packs.heard(batch, payloads[::-1], _trusted",
        "program 0",
    ),
    Mutant(
        "a batch is answered twice",
        "what a worker says of a batch that is over is of no effect",
        "dispatch.py",
        "        del slot.batches[batch.number]\n",
        "",
        "program 1",
    ),
    Mutant(
        "a dead incarnation's answer",
        "the answer of a dead incarnation is dropped",
        "supervision.py",
        "return slot if slot.incarnation == incarnation and slot.state in ALIVE else None",
        "return slot if slot.state in ALIVE else None",
        "program 3",
    ),
    Mutant(
        "no deadline for what runs",
        "a job is answered at its deadline, though its batch still runs",
        "machine.py",
        "                    self._answers.expire(key, now)\n",
        "                    if not key.out:\n                        self._answers.expire(key, now)\n",
        "program 12",
    ),
    Mutant(
        "starts at its deadline",
        "a job whose deadline has come does not start",
        "batching.py",
        "    if job.deadline <= now:\n        return now\n",
        "    if job.deadline <= now:\n        return None\n",
        "program 26",
    ),
    Mutant(
        "answered and kept",
        "nothing of a job is kept when it is answered",
        "answers.py",
        "        job.payload, job.pieces, job.batch = None, None, None\n",
        "        job.pieces, job.batch = None, None\n",
        "program 0",
    ),
    Mutant(
        "a piece is not run anew",
        "a job whose pieces cannot be joined starts over",
        "isolation.py",
        "    if not part.whole:\n        job.start_over()\n",
        "",
        "walk 11",
    ),
    # --- what may run together ---------------------------------------------------------------------------------------
    Mutant(
        "forms joined",
        "only jobs with the same names, dtypes and shapes run together",
        "line.py",
        "        name = (signature, outputs, form)\n",
        '        name = (signature, outputs, b"")\n',
        "program 1",
    ),
    Mutant(
        "outputs joined",
        "only jobs that ask for the same outputs run together",
        "line.py",
        "        name = (signature, outputs, form)\n",
        "        name = (signature, None, form)\n",
        "program 0",
    ),
    Mutant(
        "max_batch exceeded",
        "no more rows run together than `max_batch`",
        "models.py",
        "        most = self.policy.max_batch\n",
        "        most = self.policy.max_batch + 1\n",
        "program 0",
    ),
    Mutant(
        "what cannot be joined",
        "jobs of a signature without rows run one by one",
        "models.py",
        "                and info.has_rows(name, outputs)\n",
        "",
        "program 2",
    ),
    Mutant(
        "joined before proof",
        "under `auto`, rows are joined only after jobs that ran both ways have agreed",
        "independence.py",
        "return bool(self.serving) and all(self.proof(each, signature).proves(asked) for each in self.serving)",
        "return bool(self.serving)",
        "program 3",
    ),
    Mutant(
        "a few jobs prove it",
        "so many jobs have to agree before rows are joined as `ENOUGH_UNTRIED` says",
        "independence.py",
        "        return not self.differs and agreed >= enough\n",
        "        return not self.differs and agreed >= enough // 2\n",
        "program 23",
    ),
    Mutant(
        "proves ignores differs",
        "rows that once differed are never joined again",
        "independence.py",
        "        return not self.differs and agreed >= enough\n",
        "        return agreed >= enough\n",
        "program 11",
    ),
    Mutant(
        "rows that depend are trusted",
        "answers of joined rows do not count once it is known that the rows depend on each other",
        "settlement.py",
        "    return {number: failures.get(number) or told.RowsChanged(text) for number in range(len(batch.parts))}\n",
        "    return failures\n",
        "program 118",
    ),
    # --- where and when it may run -----------------------------------------------------------------------------------
    Mutant(
        "two batches in a lane",
        "a lane has one batch at a time",
        "dispatch.py",
        "        lane = slot.idle_lanes.pop()\n",
        "        lane = slot.idle_lanes[-1]\n        slot.idle_lanes = slot.idle_lanes[1:]\n",
        "program 0",
    ),
    Mutant(
        "credit is not returned",
        "a lane takes work again when its batch is over",
        "dispatch.py",
        "        slot.idle_lanes.append(batch.lane)\n",
        "        if not batch.suspect:\n            slot.idle_lanes.append(batch.lane)\n",
        "program 1",
    ),
    Mutant(
        "a drained slot gets jobs",
        "a slot that is DRAINING takes no new work",
        "slots.py",
        "bool(self.idle_lanes) and self.state is SlotState.READY and",
        "bool(self.idle_lanes) and self.state in (SlotState.READY, SlotState.DRAINING) and",
        "program 17",
    ),
    Mutant(
        "pins ignored",
        "a job runs on the device that it is pinned to",
        "line.py",
        "        if self.device is not None and self.device not in slot.names:\n            return False\n",
        "",
        "program 1",
    ),
    Mutant(
        "versions ignored",
        "a job runs with the version that it asks for",
        "line.py",
        "        return self.version is None or slot.versions.get(self.model.name) == self.version\n",
        "        return True\n",
        "walk 0",
    ),
    Mutant(
        "no affinity",
        "the jobs of a model that writes state keep to one worker",
        "homes.py",
        "        if model.home is None or len(self._holders(model.line(None))) < 2:\n",
        "        if model.stateful or model.home is None or len(self._holders(model.line(None))) < 2:\n",
        "program 14",
    ),
    Mutant(
        "company for ever",
        "a job waits for company no longer than `batch_wait`",
        "dispatch.py",
        "            self._timers.set(key, release_at)\n",
        "            self._timers.set(key, release_at + 1.0)\n",
        "program 6",
    ),
    # --- who is next -------------------------------------------------------------------------------------------------
    Mutant(
        "priority ignored",
        "of what waits for a lane, the highest priority goes first",
        "machine.py",
        "            rows or 0,\n            priority,\n",
        "            rows or 0,\n            0,\n",
        "program 1",
    ),
    Mutant(
        "priority ignored between lines",
        "of the lines that wait for a lane, the one with the highest priority goes first",
        "dispatch.py",
        "    return (-line.priority(), line.model.used_s, line.last_led)\n",
        "    return (0, line.model.used_s, line.last_led)\n",
        "program 7",
    ),
    Mutant(
        "priority ignored in its line",
        "of the jobs of a line, the highest priority leads",
        "line.py",
        "        return max(self.levels) if len(self.levels) > 1 else next(iter(self.levels))\n",
        "        return next(iter(self.levels))\n",
        "program 9",
    ),
    Mutant(
        "one client starves",
        "clients share a line by the device time that each has used",
        "line.py",
        "            queue.used_s += seconds\n",
        "            queue.used_s += 0.0\n",
        "sharing 0",
    ),
    Mutant(
        "weights ignored",
        "models share a device by their weights",
        "models.py",
        "        self.used_s += seconds / self.policy.weight\n",
        "        self.used_s += seconds\n",
        "sharing 0",
    ),
    Mutant(
        "the last comes first",
        "a client's jobs never overtake each other",
        "line.py",
        "return next(iter(queue.levels[-negative].jobs.values()))",
        "return next(reversed(queue.levels[-negative].jobs.values()))",
        "program 0",
    ),
    # --- deaths ------------------------------------------------------------------------------------------------------
    Mutant(
        "a stateful job runs again",
        "a job of a stateful model that may have started is never run again",
        "settlement.py",
        '        if job.line.model.keeps_state(job.key.signature):\n            text = f"{death}',
        '        if job is None:\n            text = f"{death}',
        "program 1",
    ),
    Mutant(
        "a stateful job from another pool",
        "a job of a stateful model that may have started in a former pool is not run",
        "doubts.py",
        "        if in_doubt and model.keeps_state(signature):\n",
        "        if attempts and model.keeps_state(signature):\n",
        "program 6",
    ),
    Mutant(
        "one attempt too many",
        "a job is lost with at most `max_attempts` workers",
        "settlement.py",
        "        most, job = self._policy.max_attempts, part.job\n",
        "        most, job = self._policy.max_attempts + 1, part.job\n",
        "program 4",
    ),
    Mutant(
        "given up at the first death",
        "a job that was lost with its worker runs again",
        "settlement.py",
        "        elif part.losses >= most:\n            text",
        "        elif part.losses:\n            text",
        "program 1",
    ),
    Mutant(
        "a suspect with an innocent",
        "what has lost a worker runs alone",
        "settlement.py",
        "            if suspects:\n                self._dispatch.suspect(batch.key.line, suspects)\n",
        "            if suspects:\n                self._dispatch.again(batch.key.line, [(*suspects,)])\n",
        "program 1",
    ),
    Mutant(
        "an innocent beside a suspect",
        "nothing is sent to a worker that runs a suspect",
        "suspects.py",
        "                slot.runs_suspect = True\n",
        "                slot.runs_suspect = False\n",
        "program 1",
    ),
    Mutant(
        "an innocent in quarantine",
        "a job is quarantined only for deaths with it alone",
        "settlement.py",
        "            alone = jobs == 1 and not batch.beside\n",
        "            alone = jobs == 1\n",
        "program 5",
    ),
    Mutant(
        "quarantine forgotten",
        "a job in quarantine is kept with its inputs",
        "settlement.py",
        "            self._keep(job)\n",
        "",
        "program 4",
    ),
    Mutant(
        "quarantine does not confine",
        "whoever has had a job in quarantine costs others one slot at most",
        "settlement.py",
        "            self._cells.confine(job.client.route, job.line.model.name, slot, now)\n        elif",
        "        elif",
        "program 25",
    ),
    Mutant(
        "while it may still write",
        "a job is not run elsewhere before the exit of its worker was seen",
        "settlement.py",
        "        elif not gone:\n",
        "        elif not (gone or job.payload):\n",
        "program 51",
    ),
    Mutant(
        "all are guilty",
        "a failed batch is taken apart until only the guilty job has the error",
        "settlement.py",
        "                case told.Spoiled(own_fault, own_text) if jobs == 1:\n",
        "                case told.Spoiled(own_fault, own_text) if jobs < 3:\n",
        "program 13",
    ),
    # --- clients -----------------------------------------------------------------------------------------------------
    Mutant(
        "a cancelled job starts",
        "a cancelled job that has not started never starts",
        "machine.py",
        "        self._answers.cancel(job, now)\n",
        "        if batch is not None or job.gathering:\n            self._answers.cancel(job, now)\n",
        "program 7",
    ),
    Mutant(
        "a cancelled member starts",
        "a cancelled job of a pack that has not started never starts",
        "batching.py",
        "    return job.has_cancelled(job.cut, job.rows) or not",
        "    return not",
        "program 16",
    ),
    Mutant(
        "a client's bytes are not returned",
        "what a client may hold is free again when its jobs are answered",
        "backlog.py",
        "        client.size_bytes -= job.size_bytes\n",
        "",
        "program 18",
    ),
    Mutant(
        "a model's bytes are not returned",
        "what a model's jobs may hold is free again when they are answered",
        "backlog.py",
        "        model.size_bytes -= job.size_bytes\n",
        "        model.size_bytes -= job.size_bytes // 2\n",
        "program 51",
    ),
    Mutant(
        "no bound of jobs",
        "the pool holds no more jobs than `max_jobs`",
        "admission.py",
        "    if jobs and jobs + more > policy.max_jobs:\n",
        "    if jobs and jobs > policy.max_jobs:\n",
        "program 0",
    ),
    Mutant(
        "no bound of bytes",
        "the pool holds no more bytes than `max_bytes`",
        "admission.py",
        "    if held_bytes + size_bytes > policy.max_bytes:\n",
        "    if size_bytes > policy.max_bytes:\n",
        "program 8",
    ),
    Mutant(
        "no bound for a client",
        "no client holds more than its share",
        "admission.py",
        "    if mine and mine + more > allowed:\n",
        "    if mine and more > allowed:\n",
        "program 1",
    ),
    # --- the end -----------------------------------------------------------------------------------------------------
    Mutant(
        "a stopped pool starts a worker",
        "a pool that has stopped starts no worker, whoever is gone at last",
        "supervision.py",
        "not slot.planned or self.stopping or self.over:\n",
        "not slot.planned:\n",
        "program 5",
    ),
    Mutant(
        "a pool that stops restarts a worker",
        "a pool that stops starts no worker for which no job waits",
        "turnover.py",
        '        if supervision.stopping:\n            return "the pool is stopping"\n',
        "",
        "program 17",
    ),
    Mutant(
        "a stop without an end",
        "a pool that stops ends in bounded time",
        "machine.py",
        '                    self._abandon(now, f"the drain took longer than {self.policy.drain_timeout_s:g} s")\n',
        "                    pass\n",
        "program 0",
    ),
)
