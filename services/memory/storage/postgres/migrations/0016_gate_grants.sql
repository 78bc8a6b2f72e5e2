-- Approvals that hold for later calls, as lines of the logs say; the tables of grants of 0014 are of budgets.

CREATE TABLE gate_grants (
    chat bigint NOT NULL REFERENCES chats ON DELETE CASCADE,
    chat_id text COLLATE "C" NOT NULL,
    grant_id text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    requester text COLLATE "C" NOT NULL,
    made_by text COLLATE "C" NOT NULL,  -- users, each with a line break before and behind it
    made_at bigint NOT NULL,
    expires_at bigint NOT NULL,  -- 0: with its run
    is_over bigint NOT NULL,
    event text NOT NULL,
    PRIMARY KEY (chat, grant_id)
);
CREATE INDEX gate_grants_of_chat ON gate_grants (chat_id) WHERE is_over = 0;
CREATE INDEX gate_grants_of_tenant ON gate_grants (tenant, made_at, chat_id, grant_id) WHERE is_over = 0;
