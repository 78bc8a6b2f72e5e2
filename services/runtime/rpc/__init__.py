"""gRPC for the services: servers, channels, interceptors, health, pushed streams."""
