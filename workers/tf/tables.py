"""The lookup tables of a graph that does not say which of its ops fill them."""

import logging
import re
from typing import Any

__all__ = ["fill_tables", "fills_a_table"]

logger = logging.getLogger("workers.tf")

_FILLS = re.compile(r"InitializeTable(FromTextFile|FromDataset)?(V2)?|LookupTableImport(V2)?")
# Those that cannot be looked into before they are filled; mutable ones begin empty.
_NEEDS_FILLING = frozenset({"HashTable", "HashTableV2"})


def fills_a_table(op: str) -> bool:
    """Whether an op of this type does."""
    return _FILLS.fullmatch(op) is not None


def fill_tables(model: str, session: Any) -> None:
    """Runs every op that fills a table, as `tables_initializer` would; says which tables nothing fills.

    Raises what TensorFlow raises.
    """
    ops = session.graph.get_operations()
    filling = [op for op in ops if fills_a_table(op.type)]
    if filling:
        session.run(filling)
    filled = {op.inputs[0].op.name for op in filling}
    empty = [str(op.name) for op in ops if op.type in _NEEDS_FILLING and op.name not in filled]
    if empty:
        why = "nothing in the graph fills it; keep its initializer when you freeze the graph"
        logger.warning("model %s: the table %s is not filled: %s", model, ", ".join(map(repr, empty)), why)
