"""One worker: a process that owns the devices of a slot, and runs there what the pool sends.

In come WELCOME, then batches over each lane's own socket. Out go beats, what was loaded, and the answers. It never
knows a client or a queue, never runs what the pool did not send, and ends when the pool does.
"""
