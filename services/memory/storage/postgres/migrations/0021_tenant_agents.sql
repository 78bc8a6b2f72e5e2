-- Tenants' agents in force, by a UUID made of tenant and key. Revisions as those of API keys (0017).

CREATE TABLE tenant_agents (
    record_id text COLLATE "C" PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    bytes bigint NOT NULL, -- of the definition; 0: the agent is removed
    updated_at bigint NOT NULL,
    version bigint NOT NULL,
    revision bigint NOT NULL,
    data bytea NOT NULL
);
CREATE UNIQUE INDEX tenant_agents_by_revision ON tenant_agents (revision);
CREATE TABLE tenant_agent_revision (last bigint NOT NULL);
INSERT INTO tenant_agent_revision VALUES (0);
