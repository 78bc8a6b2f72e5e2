"""Responses to HTTP clients: the JSON envelope, Server-Sent Events, a run as one JSON answer."""
