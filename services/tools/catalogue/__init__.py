"""The tools in force: the built-in ones, those of definition files and of MCP servers, with the operator's options."""
