"""A run from its query to its end: admitted, started, driven, steered, answered, finished."""
