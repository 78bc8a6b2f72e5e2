"""The servers of the suite. Each package but runtime is one service; services talk through stubs only."""

import os

# Read by gRPC when it is imported, which is after us, whatever a service imports first. Its handlers run in every child
# that the tools service forks, before that becomes a command, and end some of them there when other threads are in gRPC
# (grpcio 1.85).
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
