"""What each slot should run: what models want, the places and where models are come in, a plan or a refusal goes out.

Nothing here starts, stops or asks anything, and `footprints` alone reads and writes files.
"""
