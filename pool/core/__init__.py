"""What runs where and when. No I/O, no clock, no tensor: `now` is an argument, so no test needs a socket."""
