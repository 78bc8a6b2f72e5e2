"""One contract, three ways to it: gRPC, the embedded facade and the Go gateway."""
