-- How many must approve what waits at a gate, and who has.

ALTER TABLE gates ADD COLUMN votes_needed bigint NOT NULL DEFAULT 1, ADD COLUMN voters text NOT NULL DEFAULT '';
