-- Parked runs: their leases have no owner, and say when somebody is to look for them. A column of its own, so that an index
-- of it leaves the renewals of all other leases as cheap as they were.

ALTER TABLE runs
    ADD COLUMN due_at bigint NOT NULL GENERATED ALWAYS AS (CASE WHEN owner = '' THEN expires_at ELSE 0 END) STORED;
CREATE INDEX runs_due ON runs (due_at) WHERE NOT is_ended AND due_at > 0;
CREATE INDEX runs_going ON runs (started_at) WHERE NOT is_ended AND due_at = 0;
