-- Where runs wait for a person, as lines of the logs say. Gates that services of version 4 have opened are not here.

CREATE TABLE gates (
    chat bigint NOT NULL REFERENCES chats ON DELETE CASCADE,
    run_id text COLLATE "C" NOT NULL,
    gate_id text COLLATE "C" NOT NULL,
    chat_id text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    requester text COLLATE "C" NOT NULL,
    agent_key text NOT NULL,
    kind text NOT NULL,
    tool_id text NOT NULL,
    tool_name text NOT NULL,
    risk text NOT NULL,
    reason text NOT NULL,
    viewport_key text NOT NULL,
    opened_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    state text NOT NULL,
    closed_at bigint NOT NULL,  -- 0: it is open
    answered_by text NOT NULL,
    credential text NOT NULL,
    PRIMARY KEY (run_id, gate_id)
);
CREATE INDEX gates_by_chat ON gates (chat);
CREATE INDEX gates_waiting ON gates (tenant, requester, opened_at, run_id, gate_id) WHERE state = 'open';
