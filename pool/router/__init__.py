"""The pool's sockets. They turn frames into events and actions into frames, and decide nothing."""
