"""What each peer serves a model with. The interpreter of that peer's environment runs it: nothing imports ours."""
