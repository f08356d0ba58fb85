"""The pool with one check taken out: what the attacker is to notice, and does not if it has no teeth."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pool

__all__ = ["MUTANTS", "PACKAGE", "Mutant"]

PACKAGE = Path(pool.__file__).parent


@dataclass(frozen=True, slots=True)
class Mutant:
    """`check`: as it stands in the file, once. `instead`: what stands there."""

    file: str
    check: str
    instead: str = "if False:"

    def applied_to(self, text: str) -> str:
        assert text.count(self.check) == 1, f"the check has moved: name it anew: {self.check}"
        return text.replace(self.check, self.instead)

    def planted(self, folder: Path) -> Mapping[str, str]:
        """The environment in which Python finds a copy of the package that has it."""
        shutil.copytree(PACKAGE, folder / "pool", ignore=shutil.ignore_patterns("__pycache__"))
        path = folder / "pool" / self.file
        path.write_text(self.applied_to(path.read_text()))
        environ = {"PYTHONPATH": str(folder)}
        command = [sys.executable, "-P", "-c", "import pool, workers; print(pool.__file__)"]
        found = subprocess.run(command, env={**os.environ, **environ}, capture_output=True, text=True, check=True)
        assert found.stdout.strip() == str(folder / "pool" / "__init__.py"), "Python finds another one"
        return environ


CALLS, ADMISSION, MEMORY = "serve/calls.py", "core/queue/admission.py", "serve/shared_memory.py"
FRONT, LISTENER, CODEC, ADMIN = "serve/front.py", "serve/memory_listener.py", "wire/codec.py", "serve/admin.py"
JOBS, HOT = "wire/jobs.py", "wire/hot.py"
LEFT = "min(self.most_bytes - self.lent_bytes, self._client_most_bytes - has)"

MUTANTS: Mapping[str, Mutant] = {
    # --- numbers, texts and sizes of a job
    "a job's number": Mutant(CALLS, "if submit.job > MOST_NUMBER or submit.origin > MOST_NUMBER:"),
    "rows of a chunk": Mutant(CALLS, "if submit.weight > 1 and (submit.rows is None or submit.rows < submit.weight):"),
    "a long name": Mutant(CALLS, "if isinstance(name, str) and len(name) > NAME_CHARS:"),
    "count of outputs": Mutant(CALLS, "if len(outputs) > MOST_OUTPUTS:"),
    "an output twice": Mutant(CALLS, "if len(set(outputs)) < len(outputs):"),
    "a timeout that is NaN": Mutant(JOBS, "if not 0.0 <= timeout_s < math.inf:", "if timeout_s < 0.0:"),
    "a timeout": Mutant(ADMISSION, "not 0 <= timeout_s <= LONGEST_TIMEOUT_S:", "timeout_s < 0:"),
    "priority": Mutant(ADMISSION, "if priority not in PRIORITIES:"),
    "size of the table": Mutant(CALLS, "if len(submit.table) > TABLE_BYTES:"),
    "bytes for the rows": Mutant(CALLS, "call.layout.check(submit.rows or 0, buffers)", "pass"),
    "a number twice": Mutant(FRONT, "if submit.job in client.owed:  # nothing of the first is another's, or released"),
    # --- what a message is
    "UTF-8": Mutant(CODEC, "use_list=False, strict", 'use_list=False, unicode_errors="surrogateescape", strict'),
    "size of a header": Mutant(CODEC, "if len(data) > most_bytes:"),
    "type of a field": Mutant(CODEC, "if type(raw) is not kind:"),
    "count of fields": Mutant(CODEC, "if len(elements) != len(converters):", "if len(elements) < len(converters):"),
    "count of frames": Mutant("serve/inbox.py", "MOST_FRAMES = 4096", "MOST_FRAMES = 1 << 30"),
    "size of a frame": Mutant("serve/endpoints.py", "router.maxmsgsize = most_bytes", "pass"),
    "the instance": Mutant(
        FRONT,
        "if envelope.instance != self._instance:\n"
        "                raise BadFrame(OTHER_INSTANCE)\n            if type(message) is wire.Submit:",
        "if type(message) is wire.Submit:",
    ),
    "the end of a job's first frame": Mutant(HOT, "if position != len(first):"),
    "flags of a job": Mutant(JOBS, "if flags > (_IN_DOUBT | _HAS_SPACE | _REGISTERS):"),
    # --- calls
    "count of calls": Mutant(CALLS, "if len(known) >= MOST_CALLS:"),
    "the account of calls": Mutant(CALLS, "if self.size_bytes + call.size_bytes > CALLS_BYTES:"),
    "a call's number twice": Mutant(CALLS, "if not self._last < submit.call:"),
    "a call that is not known": Mutant(
        CALLS,
        "return known.get(submit.call)",
        "return known.get(submit.call, next(iter(known.values()), None))",
    ),
    # --- who it is
    "a routing id of its own": Mutant(
        "serve/routes.py", "return len(route) == GIVEN_BYTES and not route[0]", "return True"
    ),
    "a worker's secret": Mutant(
        "serve/back.py", "if secret is None or not hmac.compare_digest(secret, hello.secret):", "if secret is None:"
    ),
    "whose job is cancelled": Mutant(
        "core/queue/backlog.py",
        "client = self.clients.get(route)\n        return None if client is None else client.jobs.get(number)",
        "return next((each.jobs[number] for each in self.clients.values() if number in each.jobs), None)",
    ),
    "who may stop the pool": Mutant(
        ADMIN, "if question.what in RIGHTS and", 'if question.what in RIGHTS - {"stop"} and'
    ),
    "who may restart a slot": Mutant(
        ADMIN, "if question.what in RIGHTS and", 'if question.what in RIGHTS - {"restart", "drain"} and'
    ),
    "who may write": Mutant(CALLS, 'if names.signature in WRITING and "sessions" not in standing.may', "if False"),
    "a slot's number": Mutant(ADMIN, "if not _is_number(asked):"),
    # --- memory that is lent
    "the end of a segment": Mutant(
        MEMORY, "if offset < 0 or size_bytes < 0 or offset + size_bytes > segment.size_bytes:"
    ),
    "whose segment": Mutant(MEMORY, "if segment is None or segment.client != client:", "if segment is None:"),
    "what one client is lent": Mutant(
        MEMORY,
        LEFT,
        "self.most_bytes - self.lent_bytes",
    ),
    "what all are lent": Mutant(
        MEMORY,
        LEFT,
        "self._client_most_bytes - has",
    ),
    "a ticket twice": Mutant(LISTENER, "if client is None or client in self._fds:", "if client is None:"),
    "a ticket": Mutant(LISTENER, "self._clients.get(shown)", "next(reversed(self._clients.values()), None)"),
    "count of strangers": Mutant(LISTENER, "if len(self._strangers) >= MOST_STRANGERS:"),
    "segments of who is gone": Mutant(LISTENER, "self._shared_memory.take_back(client)", "pass"),
    "jobs of who is gone": Mutant(FRONT, "        client.forget()\n", ""),
    # --- what is held for a client
    "room in the queue": Mutant(
        ADMISSION, "    jobs, held_bytes = backlog.held, backlog.size_bytes\n", "    return None\n"
    ),
    "a share of the queue": Mutant(ADMISSION, "CLIENT_SHARE = 8", "CLIENT_SHARE = 1 << 40"),
    "count of questions": Mutant("serve/questions.py", "if len(waiting) >= MOST_WAITING:"),
    "unread answers": Mutant(
        "serve/outbox.py",
        "if len(box.waiting) > self._most_messages or (len(box.waiting) > 1 and unread > self._most_bytes):",
    ),
    "the account of unread answers": Mutant(
        "serve/outbox.py",
        "if box is not None:\n            self.size_bytes -= box.size_bytes",
        "if False:\n            pass",
    ),
    "reasons of refusals": Mutant("serve/refusals.py", "if key not in reasons and len(reasons) >= MOST_REASONS:"),
}
