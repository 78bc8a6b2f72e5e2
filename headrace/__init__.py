"""What other programs import to use Headrace: stubs, errors, stream reading and a client. No server code."""
