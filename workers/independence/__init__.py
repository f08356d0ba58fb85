"""Finds out whether each row of a signature is computed by itself.

What comes in: a loaded model, and what real jobs were fed and answered. What goes out: a `Trial` with READY, then a
ROWS_COMPARED a job. It never changes an answer, and never keeps a job waiting for longer than one run.
"""
