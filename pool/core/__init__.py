"""What runs where and when.

Jobs, answers, deaths and the time come in; batches and failures go out. It does no I/O and never looks into a body.
"""
