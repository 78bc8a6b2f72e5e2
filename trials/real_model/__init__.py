"""The suite with a real llama.cpp server and a real, small model: `python -m trials real-model`."""
