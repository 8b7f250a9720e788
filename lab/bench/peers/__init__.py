"""The same work as each peer does it: one worker a file, run by the interpreter of that peer's environment."""
