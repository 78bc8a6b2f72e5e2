-- Erasures and holds (docs/guides/erasure.md), each a record that changes if it is as its writer read it.

CREATE TABLE data_records (
    record_id text COLLATE "C" PRIMARY KEY,
    kind text NOT NULL,  -- erasure or hold
    version bigint NOT NULL,
    data bytea NOT NULL
);
CREATE INDEX data_records_of_kind ON data_records (kind);
