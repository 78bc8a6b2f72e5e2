-- What was spent, by chat and day, as charges in lines of the logs say. What earlier versions' runs have cost is not
-- here: their lines do not say for which model.

CREATE TABLE spend (
    chat bigint NOT NULL,  -- 0: chats that are deleted
    day bigint NOT NULL,  -- since 1970-01-01, UTC
    tenant text COLLATE "C" NOT NULL,
    user_name text COLLATE "C" NOT NULL,
    agent_key text COLLATE "C" NOT NULL,
    model text COLLATE "C" NOT NULL,
    credential text COLLATE "C" NOT NULL,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL,
    model_calls bigint NOT NULL,
    cost_nano_usd bigint NOT NULL,
    PRIMARY KEY (chat, day, tenant, user_name, agent_key, model, credential)
);
CREATE INDEX spend_by_day ON spend (tenant, day);
