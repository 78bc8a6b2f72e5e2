-- What API keys use of their limits: a bucket of calls for each key, and places of runs that are about to be stored.

CREATE TABLE key_calls (
    key_id text COLLATE "C" PRIMARY KEY,
    full_at_us bigint NOT NULL
);
CREATE TABLE key_runs (
    run_id text COLLATE "C" PRIMARY KEY,
    credential text COLLATE "C" NOT NULL,
    expires_at bigint NOT NULL
);
CREATE INDEX key_runs_by_credential ON key_runs (credential);
CREATE INDEX runs_live_of_key ON runs (credential) WHERE NOT is_ended AND credential <> '';
