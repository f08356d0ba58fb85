"""The pool's speed beside `Session.run` of the same graph and beside mosec under wrk, in alternating rounds."""
