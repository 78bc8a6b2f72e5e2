"""From a run to its readers: events numbered, kept and sent."""
