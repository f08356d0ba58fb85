"""What runs where and when.

In come jobs, workers, what lanes answer, deaths and the time; out go batches to send, failures to tell and regions that
are free again. It does no I/O, reads no clock (`now` is an argument) and never looks into a body.
"""
