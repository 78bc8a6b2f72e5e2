"""Has the parts of a tool: definition, context, arguments, commands and questions to a model."""
