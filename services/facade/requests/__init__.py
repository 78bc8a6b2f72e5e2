"""HTTP requests as protobuf messages: body, query string, Range header."""
