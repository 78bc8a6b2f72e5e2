-- Indexes with which lists, searches and erasures read what they answer, however much is stored. A search reads its
-- user's texts: the index of all texts' parts, which was asked before their owners, is gone.

DROP INDEX texts_by_part;
CREATE INDEX texts_of_user ON texts (tenant, user_name, id);

CREATE INDEX runs_of_user ON runs (of_tenant, of_user, started_at, run_id);
CREATE INDEX runs_of_agent ON runs (of_tenant, agent_key, started_at, run_id);
CREATE INDEX runs_in_state ON runs (of_tenant, state, started_at, run_id);
CREATE INDEX runs_live_of_tenant ON runs (of_tenant, started_at, run_id) WHERE NOT is_ended;

CREATE INDEX gates_by_tenant_and_chat ON gates (tenant, chat_id);

CREATE INDEX deliveries_of_run ON deliveries (tenant, run_id);

CREATE INDEX schedules_of_tenant ON schedules (tenant, created_at, schedule_id);
