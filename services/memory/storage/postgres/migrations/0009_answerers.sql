-- Who may answer a gate; those that were opened before are their requesters'.

ALTER TABLE gates ADD COLUMN answerers text NOT NULL DEFAULT '', ADD COLUMN not_requester bigint NOT NULL DEFAULT 0;
UPDATE gates SET answerers = E'\nuser:' || requester || E'\n';
CREATE INDEX gates_of_tenant ON gates (tenant, opened_at, run_id, gate_id) WHERE state = 'open';
