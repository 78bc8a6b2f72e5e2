"""What is beyond the services of a simulated world: the model and the tools."""
