"""One contract with three entry points: gRPC, the embedded facade and the Go gateway."""
