-- Webhooks, and what is delivered to them: rows that the statement which stores a line makes of its events.

CREATE TABLE webhooks (
    webhook_id text COLLATE "C" PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    types text NOT NULL,  -- with a comma before, between and behind them
    agents text NOT NULL,  -- likewise; empty: all
    is_paused integer NOT NULL,
    is_full integer NOT NULL,
    matches_from bigint NOT NULL,
    created_at bigint NOT NULL,
    data bytea NOT NULL
);
CREATE INDEX webhooks_of_tenant ON webhooks (tenant);

CREATE SEQUENCE delivery_places;

CREATE TABLE deliveries (
    webhook_id text COLLATE "C" NOT NULL REFERENCES webhooks ON DELETE CASCADE,
    event_id text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    type text NOT NULL,
    subject text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    gate_id text COLLATE "C" NOT NULL,
    agent_key text NOT NULL,
    occurred_at bigint NOT NULL,
    payload text NOT NULL,
    state text NOT NULL,  -- scheduled, waiting, delivered or dead
    place bigint NOT NULL,
    began_at bigint NOT NULL,
    next_at bigint NOT NULL,
    tries bigint NOT NULL,
    closed_at bigint NOT NULL,  -- 0: it has not ended
    status bigint NOT NULL,
    failure text NOT NULL,
    PRIMARY KEY (webhook_id, event_id)
);
CREATE INDEX deliveries_due ON deliveries (webhook_id, next_at) WHERE state = 'waiting';
CREATE INDEX deliveries_in_order ON deliveries (webhook_id, subject, place, event_id) WHERE state = 'waiting';
CREATE INDEX deliveries_next ON deliveries (next_at) WHERE state IN ('waiting', 'scheduled');
CREATE INDEX deliveries_of_gates ON deliveries (run_id, gate_id) WHERE state = 'scheduled';
CREATE INDEX deliveries_shown ON deliveries (webhook_id, occurred_at, event_id);
CREATE INDEX deliveries_ended ON deliveries (closed_at) WHERE closed_at > 0;
CREATE INDEX deliveries_open ON deliveries (state) WHERE state IN ('waiting', 'dead');
