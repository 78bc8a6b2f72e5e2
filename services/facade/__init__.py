"""The HTTP and Server-Sent Events server in front of the gRPC services."""
