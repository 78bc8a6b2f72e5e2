"""An interactive conversation at the terminal, including commands during a run."""
