-- What runs are pinned to; tenant is empty for the operator's agents, which all tenants have.

CREATE TABLE agent_versions (
    tenant text COLLATE "C" NOT NULL,
    agent_key text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    hash text COLLATE "C" NOT NULL,
    created_at bigint NOT NULL,
    definition bytea NOT NULL,
    PRIMARY KEY (tenant, agent_key, version),
    UNIQUE (tenant, agent_key, hash)
);
