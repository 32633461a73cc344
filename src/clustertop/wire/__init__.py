"""How frames get here: SSH, this machine, or a recording. The only layer that sees bytes from a node."""
