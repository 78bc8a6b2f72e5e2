-- What is shown of runs to those who operate. Of runs that services of version 9 have ended, the end is not known here.

ALTER TABLE runs
    ADD COLUMN state text NOT NULL DEFAULT '',  -- empty: it goes on, or see above
    ADD COLUMN reason text NOT NULL DEFAULT '',
    ADD COLUMN updated_at bigint NOT NULL DEFAULT 0,
    ADD COLUMN model_calls bigint NOT NULL DEFAULT 0,
    ADD COLUMN input_tokens bigint NOT NULL DEFAULT 0,
    ADD COLUMN output_tokens bigint NOT NULL DEFAULT 0,
    ADD COLUMN cost_nano_usd bigint NOT NULL DEFAULT 0,
    ADD COLUMN credential text NOT NULL DEFAULT '',
    -- Not named as in chats, with which services of version 9 join them.
    ADD COLUMN of_tenant text COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN of_user text COLLATE "C" NOT NULL DEFAULT '';
UPDATE runs SET of_tenant = chats.tenant, of_user = chats.user_name FROM chats WHERE chats.id = runs.chat;
CREATE INDEX runs_of_tenant ON runs (of_tenant, started_at, run_id);
