"""One model call: attempt after attempt at the request's targets, until one of them has reached the caller."""
