"""Connections inside one process: messages pass from channel to server as bytes, without a socket."""
