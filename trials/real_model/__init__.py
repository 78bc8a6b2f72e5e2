"""The suite before a real llama.cpp server with a real, small model: `python -m trials real-model`."""
