"""The product without one check: the attack that is named has to notice it."""

from support.mutants import Mutant

MUTANTS = (
    ("junk", Mutant("a bad message ends nobody", "pool/serve/service.py", "(BadMessage, Lie, ValueError, struct.error)", "(Lie, struct.error)")),
    ("junk", Mutant("a number is used once", "pool/core/scheduler.py", "if numbers is not None and job.number in numbers:", "if False:")),
    ("junk", Mutant("seconds are a time", "pool/wire/bodies.py", "if not 0.0 <= seconds <= MOST_SECONDS or not", "if not")),
    ("mutations", Mutant("a body ends in its frame", "pool/wire/bodies.py", "if ends > end or", "if")),
    ("specs", Mutant("a dtype is known", "pool/wire/specs.py", "if dtype not in ITEM_BYTES:", "if False:")),
    ("strings", Mutant("a string ends behind its begin", "pool/wire/tensors.py", "if not begin <= stop <= len(blob):", "if False:")),
    ("letters", Mutant("long messages have one body", "pool/serve/service.py", "if body.ends > LETTER_BYTES and", "if False and")),
    ("letters", Mutant("a question travels alone", "pool/serve/service.py", "Kind.ASK and is_alone:", "Kind.ASK:")),
    ("tokens", Mutant("only a token joins", "pool/serve/service.py", "self._peers.get(frame[HEAD.size :])", "self._peers.get(frame[HEAD.size :]) or next(iter(self._clients), None)")),
    ("descriptors", Mutant("lent memory is sealed", "pool/wire/link.py", "if seals & SEALS != SEALS:", "if False:")),
    ("descriptors", Mutant("what is refused is closed", "pool/wire/link.py", "            os.close(descriptor)\n\n    with", "            pass\n\n    with")),
    ("lingers", Mutant("nobody waits for a close", "pool/wire/link.py", "threading.Thread(target=close, name=\"close\", daemon=True).start()", "close()")),
    ("regions", Mutant("a region is its client's", "pool/serve/sockets.py", "if lent is None:", "if False:")),
    ("regions", Mutant("workers outlive bad memory", "workers/lane.py", "BadMessage, OSError, ValueError, OverflowError", "BadMessage")),
    ("floods", Mutant("a flood has an end", "pool/serve/service.py", "if count > MOST_AT_ONCE:", "if False:")),
    ("unread", Mutant("who does not read is cut off", "pool/serve/service.py", "if held > MOST_UNREAD_BYTES or now - unread.since > MOST_UNREAD_S:", "if False:")),
    ("an unknown batch", Mutant("a batch is known", "pool/core/scheduler.py", "if batch is None or batch.lane != lane or len", "if len")),
    ("link junk", Mutant("no word of a worker ends the pool", "pool/serve/fleet.py", "except Exception as error:  # whatever", "except OSError as error:  #")),
    ("requests", Mutant("JSON has a depth", "pool/door/door.py", "except (ValueError, RecursionError) as error:", "except ValueError as error:")),
    ("requests", Mutant("what is unpacked has a bound", "pool/door/http.py", "if max(came, len(body)) > most:", "if False:")),
    ("messages", Mutant("bytes that are no message are refused", "pool/door/rpc.py", "elif isinstance(error, DecodeError):", "elif False:")),
)  # fmt: skip
