"""What each slot should run.

What models want, the places for them and where they are now come in; which models each slot serves goes out, or a
refusal that says what does not fit and what would help. Nothing here starts, stops or asks anything. `footprints`
alone reads and writes files.
"""
