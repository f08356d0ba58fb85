"""What a person reads on a terminal or in a pipe.

Figures, sizes and durations come in as numbers, rows as texts. Words, tables and moving lines go out, to stdout or
stderr. It never asks a pool, and nothing that another program reads comes from here: `--json` has the exact values.
"""

from pool.terminal.keys import Keys
from pool.terminal.moving_line import is_watched, moving_line
from pool.terminal.pane import CHART, Heading, Pane
from pool.terminal.plot import Curve, plot
from pool.terminal.readable import count_of, gibibytes, labelled, percent, short_uuid, size, span
from pool.terminal.sparkline import sparkline
from pool.terminal.tables import (
    STATE_STYLES,
    Column,
    new_table,
    numeric,
    plain_console,
    progress_console,
    show,
    styled_state,
    table,
)

__all__ = [
    "CHART",
    "STATE_STYLES",
    "Column",
    "Curve",
    "Heading",
    "Keys",
    "Pane",
    "count_of",
    "gibibytes",
    "is_watched",
    "labelled",
    "moving_line",
    "new_table",
    "numeric",
    "percent",
    "plain_console",
    "plot",
    "progress_console",
    "short_uuid",
    "show",
    "size",
    "span",
    "sparkline",
    "styled_state",
    "table",
]
