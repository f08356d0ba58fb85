"""The pool's log: one line an event, on standard error, and never a reason for the pool's loop to wait.

In come records of `logging` with the fields of `about`. Out go lines for a person, JSON, or fields for the journal.

log.info(…, extra=about("slot_ready", slot=0)) ─► Entry ─► queue ─► thread ─┬─► systemd's journal, by field
                                                                            └─► standard error: text, JSON, <6>…
"""

from pool.logs.entry import Entry, Field, about, callers
from pool.logs.lines import as_json_line, for_people, wants_colour
from pool.logs.output import show, since, to_file, to_stderr

__all__ = [
    "Entry",
    "Field",
    "about",
    "as_json_line",
    "callers",
    "for_people",
    "show",
    "since",
    "to_file",
    "to_stderr",
    "wants_colour",
]
