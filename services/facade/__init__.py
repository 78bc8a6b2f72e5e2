"""Serves HTTP and Server-Sent Events in front of the gRPC services."""
