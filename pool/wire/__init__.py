"""What two processes say to each other, and how it looks on the way.

Values come in and frames go out, or the other way round: fixed headers for what each job needs, msgpack for what is
rare, tensors as they lie in memory. Everything that is read is checked here, before anybody acts on it. It never opens
a socket, and never knows what a message is for. Its files are its door: one kind of message or value each.
"""
