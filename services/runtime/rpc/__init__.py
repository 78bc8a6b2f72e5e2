"""gRPC as the services use it: servers, channels, interceptors, health, streams that are pushed."""
