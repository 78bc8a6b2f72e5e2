"""Which calls a person is asked about, and how: approvals.yaml, its verdict on a call, the question and the answer."""
