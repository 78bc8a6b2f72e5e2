"""The API of modes: the model, tools, agents, people, the plan and its tasks; all of it durable."""
