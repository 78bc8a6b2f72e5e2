"""Parses HTTP requests into protobuf messages: body, form with a file, query string, Range header."""
