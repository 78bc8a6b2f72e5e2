"""Responses to HTTP clients: JSON envelope, Server-Sent Events, and a run as one JSON answer."""
