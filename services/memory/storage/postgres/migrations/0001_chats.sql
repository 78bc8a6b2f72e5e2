-- Chats, their lines, and what can be asked without reading lines. Ids of ours are text as callers write them.

-- Finds any part of a text, in any script, as the trigrams of the embedded index do. Comes with PostgreSQL.
CREATE EXTENSION IF NOT EXISTS pg_trgm;

CREATE TABLE chats (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,  -- a chat that is deleted and made again has another one
    chat_id text COLLATE "C" NOT NULL UNIQUE,
    version bigint NOT NULL,  -- counts its appends and changes of owners; whoever writes says which one was read
    name text NOT NULL,
    first_agent_key text NOT NULL,
    last_agent_key text NOT NULL,
    created_at bigint NOT NULL,  -- times are Unix milliseconds
    updated_at bigint NOT NULL,
    tenant text COLLATE "C" NOT NULL,  -- whose chat it is, by its first line
    user_name text COLLATE "C" NOT NULL
);
CREATE INDEX chats_by_place ON chats (tenant, user_name, (-updated_at), chat_id);

CREATE TABLE lines (
    chat bigint NOT NULL REFERENCES chats ON DELETE CASCADE,
    n bigint NOT NULL,
    data bytea NOT NULL,  -- the JSON as it stands in a log file, without the line break
    PRIMARY KEY (chat, n)
);

CREATE TABLE runs (
    chat bigint NOT NULL REFERENCES chats ON DELETE CASCADE,
    run_id text COLLATE "C" NOT NULL UNIQUE,
    agent_key text NOT NULL,
    started_at bigint NOT NULL,
    generation bigint NOT NULL,  -- of the last writer
    last_seq bigint NOT NULL,
    is_ended boolean NOT NULL,
    owner text NOT NULL,  -- empty: nobody ever had a lease
    lease_generation bigint NOT NULL,
    expires_at bigint NOT NULL,  -- 0: given up, or never had
    PRIMARY KEY (chat, run_id)
);
CREATE INDEX runs_unfinished ON runs (started_at) WHERE NOT is_ended;

CREATE TABLE texts (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    chat bigint REFERENCES chats ON DELETE CASCADE,  -- NULL: a fact that was remembered
    run_id text NOT NULL,
    kind text NOT NULL,
    text text NOT NULL,
    folded text NOT NULL,  -- what is searched: without upper and lower case
    tenant text COLLATE "C" NOT NULL,
    user_name text COLLATE "C" NOT NULL
);
CREATE INDEX texts_by_chat ON texts (chat);
CREATE INDEX texts_by_part ON texts USING gin (folded gin_trgm_ops);

CREATE TABLE facts (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    fact_id text NOT NULL UNIQUE,
    key text NOT NULL,  -- the request id, or the fact's own where the caller has given none
    request_id text NOT NULL,
    updated_at bigint NOT NULL,
    text text NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    user_name text COLLATE "C" NOT NULL,
    UNIQUE (tenant, user_name, key)
);

CREATE TABLE blobs (
    chat_id text COLLATE "C" NOT NULL,  -- of a chat that may be still to come
    blob_id text NOT NULL,
    mime_type text NOT NULL,
    data bytea NOT NULL,
    wanted_at bigint NOT NULL,
    PRIMARY KEY (chat_id, blob_id)
);
ALTER TABLE blobs ALTER data SET STORAGE EXTERNAL;  -- pictures are compressed already
