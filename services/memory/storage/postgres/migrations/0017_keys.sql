-- API keys. Each change takes the next revision under the lock of the one row of api_key_revision, so that what is
-- committed later has the greater one, and who reads on from the last that it knows misses none.

CREATE TABLE api_keys (
    key_id text COLLATE "C" PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    created_at bigint NOT NULL,
    version bigint NOT NULL,
    revision bigint NOT NULL,
    data bytea NOT NULL
);
CREATE INDEX api_keys_of_tenant ON api_keys (tenant, created_at, key_id);
CREATE UNIQUE INDEX api_keys_by_revision ON api_keys (revision);
CREATE TABLE api_key_revision (last bigint NOT NULL);
INSERT INTO api_key_revision VALUES (0);
