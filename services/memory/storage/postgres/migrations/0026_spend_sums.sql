-- Sums of spend by day, kept by triggers in the transaction that changes its rows, so that budgets and usage read a few
-- rows however much was spent. A scope says which columns a sum is by; its others are empty: tenant (none), agent (agent
-- and model), user (all four). A chat adds to one of eight slots, so that appends do not queue up for one row.
--
-- The sums of a tenant are locked first, for each day in order: whoever holds one is alone with all others of its slot.

CREATE TABLE spend_sums (
    tenant text COLLATE "C" NOT NULL,
    scope text COLLATE "C" NOT NULL,
    day bigint NOT NULL,
    user_name text COLLATE "C" NOT NULL,
    agent_key text COLLATE "C" NOT NULL,
    model text COLLATE "C" NOT NULL,
    credential text COLLATE "C" NOT NULL,
    slot bigint NOT NULL DEFAULT 0,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL,
    model_calls bigint NOT NULL,
    cost_nano_usd bigint NOT NULL,
    PRIMARY KEY (tenant, scope, day, user_name, agent_key, model, credential, slot)
);
CREATE INDEX spend_sums_of_user ON spend_sums (tenant, user_name, day) WHERE scope = 'user';
CREATE INDEX spend_sums_of_key ON spend_sums (tenant, credential, day) WHERE credential <> '';

DROP INDEX spend_by_day;
CREATE INDEX spend_of_deleted_chats ON spend (tenant, user_name) WHERE chat = 0;

CREATE FUNCTION add_to_spend_sums() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    plus spend[] := '{}';
    minus spend[] := '{}';
BEGIN
    IF TG_OP <> 'DELETE' THEN
        plus := ARRAY(SELECT ROW(added.*)::spend FROM added);
    END IF;
    IF TG_OP <> 'INSERT' THEN
        minus := ARRAY(SELECT ROW(removed.*)::spend FROM removed);
    END IF;
    INSERT INTO spend_sums AS kept
    SELECT tenant, scope, day, CASE scope WHEN 'user' THEN user_name ELSE '' END,
        CASE scope WHEN 'tenant' THEN '' ELSE agent_key END, CASE scope WHEN 'tenant' THEN '' ELSE model END,
        CASE scope WHEN 'user' THEN credential ELSE '' END, chat % 8, sum(sign * input_tokens),
        sum(sign * output_tokens), sum(sign * cached_tokens), sum(sign * model_calls), sum(sign * cost_nano_usd)
    FROM (SELECT 1 AS sign, * FROM unnest(plus) UNION ALL SELECT -1, * FROM unnest(minus)) AS changed,
        unnest('{tenant,agent,user}'::text[]) AS scope
    GROUP BY 1, 2, 3, 4, 5, 6, 7, 8 ORDER BY scope <> 'tenant', 3, 1, 2, 4, 5, 6, 7, 8
    ON CONFLICT (tenant, scope, day, user_name, agent_key, model, credential, slot) DO UPDATE SET
        input_tokens = kept.input_tokens + EXCLUDED.input_tokens,
        output_tokens = kept.output_tokens + EXCLUDED.output_tokens,
        cached_tokens = kept.cached_tokens + EXCLUDED.cached_tokens,
        model_calls = kept.model_calls + EXCLUDED.model_calls,
        cost_nano_usd = kept.cost_nano_usd + EXCLUDED.cost_nano_usd;
    RETURN NULL;
END $$;

CREATE TRIGGER spend_added AFTER INSERT ON spend
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION add_to_spend_sums();
CREATE TRIGGER spend_changed AFTER UPDATE ON spend
    REFERENCING OLD TABLE AS removed NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION add_to_spend_sums();
CREATE TRIGGER spend_removed AFTER DELETE ON spend
    REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION add_to_spend_sums();

INSERT INTO spend_sums
SELECT tenant, scope, day, CASE scope WHEN 'user' THEN user_name ELSE '' END,
    CASE scope WHEN 'tenant' THEN '' ELSE agent_key END, CASE scope WHEN 'tenant' THEN '' ELSE model END,
    CASE scope WHEN 'user' THEN credential ELSE '' END, chat % 8, sum(input_tokens), sum(output_tokens),
    sum(cached_tokens), sum(model_calls), sum(cost_nano_usd)
FROM spend, unnest('{tenant,agent,user}'::text[]) AS scope GROUP BY 1, 2, 3, 4, 5, 6, 7, 8;

-- Grants are deleted with the end of their runs.
DELETE FROM grants USING runs WHERE runs.run_id = grants.run_id AND runs.is_ended;
