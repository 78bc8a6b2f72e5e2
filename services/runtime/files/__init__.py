"""Files: durable names, and files that people change while services run."""
