CREATE TABLE schedules (
    schedule_id text PRIMARY KEY,
    tenant text NOT NULL,
    user_name text NOT NULL,
    created_at bigint NOT NULL,
    starts_at bigint NOT NULL,
    version bigint NOT NULL,
    data bytea NOT NULL
);
CREATE INDEX schedules_of_user ON schedules (tenant, user_name, created_at, schedule_id);
CREATE INDEX schedules_next ON schedules (starts_at, schedule_id) WHERE starts_at > 0;
