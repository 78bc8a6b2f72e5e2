"""Files: durable names, and those that people change while services run."""
