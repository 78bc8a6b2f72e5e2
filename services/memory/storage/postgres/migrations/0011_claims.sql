-- Who has claimed a gate, and until when; 0: nobody.

ALTER TABLE gates ADD COLUMN claimed_by text NOT NULL DEFAULT '', ADD COLUMN claimed_until bigint NOT NULL DEFAULT 0;
