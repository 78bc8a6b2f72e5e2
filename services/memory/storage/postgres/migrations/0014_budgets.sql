-- What runs may spend of budgets in all their life. What of it is still kept for a run follows from its charges and lease.

CREATE TABLE grants (
    run_id text COLLATE "C" PRIMARY KEY REFERENCES runs (run_id) ON DELETE CASCADE,
    nano_usd bigint NOT NULL,
    tokens bigint NOT NULL,
    agents text NOT NULL  -- keys, each with a line break before and behind it
);
