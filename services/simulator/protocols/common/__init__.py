"""Parts that the protocols share."""
