"""Agent files and the prompts that come with the suite."""
