"""One contract, three ways to it: gRPC, the embedded facade and the Go gateway."""

import pytest

pytest.register_assert_rewrite("tests.conformance.both")
