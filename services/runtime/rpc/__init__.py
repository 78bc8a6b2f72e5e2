"""gRPC as the services use it: servers, channels, interceptors, health, pushed streams."""
