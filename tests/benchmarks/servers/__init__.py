"""What each peer serves a model with; run by the interpreter of that peer's environment, so nothing here imports ours."""
