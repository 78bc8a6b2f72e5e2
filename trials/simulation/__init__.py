"""The real services in a simulated world: clock, network, processes and disk come from one seed."""
