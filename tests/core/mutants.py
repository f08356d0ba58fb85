"""The core with one promise broken: each mutant is a patch of one place, and some walk has to notice it."""

from collections import ChainMap
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace

from core.scenes import SCENES
from core.walk import walk
from support.mutants import Mutant, modules

FILES = ("jobs", "dispatcher", "scheduler")


def core(mutant: Mutant | None = None) -> SimpleNamespace:
    return SimpleNamespace(**ChainMap(*modules("pool.core", FILES, mutant)[::-1]))


def programs(mutant: Mutant) -> Iterator[partial[object]]:
    """Those that may notice it."""
    patched = core(mutant)
    for scene in SCENES:
        yield partial(scene, patched)
    for seed in range(60):
        yield partial(walk, patched, seed)


MUTANTS = (
    # --- what is taken ---
    Mutant("the pool holds no more than max_jobs", "scheduler", "policy.max_jobs - self.jobs", "policy.max_jobs + 1 - self.jobs"),
    Mutant("the pool holds no more than max_bytes", "scheduler", "if room < nbytes or", "if room < 0 or"),
    Mutant("one client leaves bytes for others", "scheduler", "account.nbytes + nbytes > SHARE * room", "False"),
    Mutant("a stateful job that another pool may have run is refused", "scheduler", "if job.is_resent and", "if 0 and"),
    Mutant("kills of former pools count", "scheduler", "min(job.attempts, policy.max_attempts - 1)", "0"),
    Mutant("a pool that stops takes nothing", "scheduler", "if not self.is_taking:\n            raise", "if 0:\n            raise"),
    # --- in which order ---
    Mutant("a higher priority goes first", "jobs", "(-job.priority, job.rank,", "(0, job.rank,"),
    Mutant("the smallest head goes first", "jobs", "heappush(self.heads, line.waiting[0])", "heappush(self.heads, (0, 0, *line.waiting[0][2:]))"),
    Mutant("a line's next head competes anew", "jobs", "if head is not first:", "if head is None:"),
    Mutant("a client's jobs keep their order", "jobs", "job.rank, job.order, job)", "-job.rank, job.order, job)"),
    Mutant("stateful jobs run as they arrive", "scheduler", "job.priority = 0  #", "pass  #"),
    Mutant("what one group leaves over goes to the next", "dispatcher", "self._wanted[model] = None", "pass"),
    Mutant("a suspect finds a worker in any group", "dispatcher", "model.policy.is_stateful or model.had_suspects", "model.policy.is_stateful"),
    # --- what runs together ---
    Mutant("no more rows than max_batch", "jobs", "room = self.policy.max_batch if", "room = 1 + self.policy.max_batch if"),
    Mutant("a job without rows is not joined", "jobs", "elif size > room or not size:", "elif size > room:"),
    Mutant("jobs are grouped for 2 ms", "jobs", "GROUP_S, GROUP_JOBS = 0.002", "GROUP_S, GROUP_JOBS = 0.02"),
    Mutant("stateful jobs travel alone", "jobs", "line.usual_s and not self.policy.is_stateful", "line.usual_s"),
    Mutant("a stateful model runs one job", "dispatcher", "(model.running or is_elsewhere)", "is_elsewhere"),
    Mutant("a stateful model keeps to its home", "dispatcher", "            model.home = worker\n", ""),
    Mutant("a job waits for company", "jobs", "or line.ripe_at <= now:", "or True:"),
    Mutant("for no longer than batch_wait", "jobs", "heappush(self.timers, (ripe_at,", "heappush(self.timers, (ripe_at + 1,"),
    # --- when a run fails ---
    Mutant("only joined jobs run again", "scheduler", "in HALVED and is_joined and", "in HALVED and"),
    Mutant("innocent jobs run again", "scheduler", "elif outcome in HALVED", "elif False"),
    Mutant("failed jobs run again by halves", "scheduler", "jobs[:middle], jobs[middle:]", "jobs[:1], jobs[1:]"),
    Mutant("a stale block is its client's", "scheduler", '"InvalidInput"})', '"InvalidInput", "Stale"})'),
    Mutant("halves are among themselves", "jobs", "group = self.again.popleft()", "group = [*self.again.popleft(), *(self.again and self.again.popleft())]"),
    # --- when a worker ends ---
    Mutant("a suspect runs beside nothing", "dispatcher", "worker.is_exclusive = is_suspect", "pass"),
    Mutant("a busy worker empties itself for a suspect", "dispatcher", "model.trials else group.workers", "model.trials else group.empty"),
    Mutant("a suspect runs in another slot", "dispatcher", "and (is_only or job.died_in != slot)", "and True"),
    Mutant("a death beside others is not the last", "scheduler", "if is_alone or job.attempts + 1 < most:", "if True:"),
    Mutant("max_attempts deaths are enough", "scheduler", "elif job.attempts >= most:", "elif job.attempts > most:"),
    Mutant("a lost stateful job does not", "scheduler", "        if model.policy.is_stateful:\n            text", "        if 0:\n            text"),
    Mutant("a closed worker gets nothing", "dispatcher", "if worker.is_closed or worker.is_exclusive", "if worker.is_exclusive"),
    Mutant("a batch has as long as its jobs", "dispatcher", "longest_s = job.deadline - job.arrived", "pass"),
    Mutant("a hung batch is told", "dispatcher", "min([batch.hangs_at for batch in running], default=inf)", "inf"),
    # --- how a job ends ---
    Mutant("it ends at its deadline while it runs", "scheduler", "if job.state is not ENDED:", "if job.state is QUEUED:"),
    Mutant("somebody looks at each deadline", "scheduler", "min(deadlines[0][0] if", "min(deadlines[0][0] + 1 if"),
    Mutant("what cannot be in time is left", "jobs", "needed_s = min(recent) if", "needed_s = 0.0 if"),
    Mutant("old runs leave nobody", "jobs", "FORGOTTEN_S = 10.0", "FORGOTTEN_S = 1e9"),
    Mutant("a cancelled job never starts", "jobs", "            del self.suspects[job]\n", "            pass\n"),
    Mutant("a region is free after the run only", "scheduler", "            if not is_running:\n", "            if True:\n"),
    Mutant("a region is given back after a run", "scheduler", "            if job.state is ENDED:\n                self._release(job)\n            elif", "            if job.state is ENDED:\n                pass\n            elif"),
    Mutant("and after a death", "scheduler", "                if job.state is ENDED:\n                    self._release(job)\n", "                if job.state is ENDED:\n                    pass\n"),
    Mutant("a stopping pool ends what has started", "scheduler", "and job.place != AGAIN:", "and True:"),
    Mutant("an ended job keeps no body", "scheduler", 'b""\n        del job.call', 'job.body\n        del job.call'),
    Mutant("an ended job costs its client nothing", "scheduler", "account.nbytes -= job.nbytes", "pass"),
    # --- models that come and go ---
    Mutant("a policy changes in place", "scheduler", "        model.policy = policy\n", "        pass\n"),
    Mutant("a removed model takes no job", "scheduler", "        if model.is_gone:", "        if False:"),
    Mutant("and its jobs that wait end", "scheduler", '        self.give_up(name, text, "ModelNotFound")\n', ""),
    Mutant("a model that comes again is another one", "scheduler", "self.models.pop(name).is_gone", "self.models[name].is_gone"),
    Mutant("the load of a model is known", "scheduler", "counts.accepted - counts.answered - counts.cancelled", "counts.accepted - counts.answered"),
    # --- pins ---
    Mutant("a pinned job runs in its slot alone", "dispatcher", "self.pins.get(worker.slot, ())", "[job for pinned in self.pins.values() for job in pinned]"),
    Mutant("pinned jobs run by arrival", "dispatcher", "for job in self.pins.get(worker.slot, ())", "for job in reversed(self.pins.get(worker.slot, {}))"),
    Mutant("a pinned job wakes its worker", "scheduler", "each.slot == call.slot]", "False]"),
    Mutant("an idle lane looks for pinned jobs first", "dispatcher", "            if worker.slot in self.pins:", "            if False:"),
    Mutant("and no other work comes between", "dispatcher", "and not self._called and (jobs", "and (jobs"),
    Mutant("a pinned stateful job waits for the home", "dispatcher", "model.home in (None, worker)", "True"),
    Mutant("and for the job before it", "dispatcher", "(not model.running and model.home", "(model.home"),
    Mutant("a worker has pinned jobs of its own models", "dispatcher", "if model in worker.numbers and is_free", "if is_free"),
    Mutant("a pinned suspect stays in its slot", "dispatcher", "job.call.slot == slot or (job.call.slot < 0 and", "job.call.slot == slot or (True and"),
    Mutant("where it may run again", "dispatcher", "if job.call.slot == slot or (job.call.slot < 0 and", "if (job.call.slot in (-1, slot) and"),
    Mutant("a cancelled pinned job never starts", "scheduler", "                self._unpin(job)\n", "                pass\n"),
    Mutant("pinned jobs hold up no suspect", "dispatcher", "            if model.suspects:\n                self._reserve(model, group)  #", "            if False:\n                pass  #"),
    Mutant("pinned jobs take no turns of others", "dispatcher", "used > group.clock and place <= AGAIN:", "used > group.clock:"),
    # --- lies ---
    Mutant("a lane answers for itself", "scheduler", "or batch.lane != lane or", "or"),
)  # fmt: skip
