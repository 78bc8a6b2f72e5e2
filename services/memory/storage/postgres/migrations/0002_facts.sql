-- Facts with a scope, a topic, a source and a validity. They are searched where they stand, so that deleting one leaves
-- no copy in the index of texts.

ALTER TABLE facts
    ADD COLUMN scope text NOT NULL DEFAULT 'user',
    ADD COLUMN agent_key text NOT NULL DEFAULT '',
    ADD COLUMN topic text NOT NULL DEFAULT '',
    ADD COLUMN chat_id text NOT NULL DEFAULT '',
    ADD COLUMN run_id text NOT NULL DEFAULT '',
    ADD COLUMN line_n bigint NOT NULL DEFAULT 0,
    ADD COLUMN created_at bigint NOT NULL DEFAULT 0,  -- 0: as updated_at
    ADD COLUMN ended_at bigint NOT NULL DEFAULT 0,
    ADD COLUMN replaced_by text NOT NULL DEFAULT '',
    ADD COLUMN deleted_at bigint NOT NULL DEFAULT 0;  -- not 0: a tombstone
CREATE INDEX facts_of_tenants ON facts (tenant) WHERE scope = 'tenant';

DELETE FROM texts WHERE kind = 'fact';
CREATE INDEX texts_of_facts ON texts (tenant, user_name) WHERE kind = 'fact';  -- what services of version 1 still write
