"""HTTP requests as protobuf messages: body, form with a file, query string, Range header."""
