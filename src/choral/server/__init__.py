"""The server's half of a turn: nobody has to trust it."""
