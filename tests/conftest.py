"""For all tests, before anything else is imported."""

import os

# The command line starts processes by fork; gRPC's own fork handlers, loaded by other tests, would abort the child.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

from hypothesis import settings

# No test is timed: on a busy machine a deadline says nothing.
settings.register_profile("suite", deadline=None)
settings.load_profile("suite")
