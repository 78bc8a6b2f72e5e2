"""Who spends what."""
