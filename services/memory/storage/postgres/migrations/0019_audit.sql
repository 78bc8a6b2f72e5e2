-- Version 19: the audit log of each tenant.

CREATE TABLE audit_heads (
    tenant text PRIMARY KEY,
    seq bigint NOT NULL,
    hash text NOT NULL
);

CREATE TABLE audit (
    tenant text NOT NULL,
    seq bigint NOT NULL,
    at bigint NOT NULL,
    line text NOT NULL,
    PRIMARY KEY (tenant, seq)
);
