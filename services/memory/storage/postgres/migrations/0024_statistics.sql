-- The planner keeps no samples of what people wrote: rows of pg_statistic would outlive an erasure, which can neither see
-- them nor, where the database is another role's, remove them. A type that stays as it is forgets the samples taken so far,
-- without writing the table anew; it forgets how the column is stored, too.

ALTER TABLE lines ALTER data TYPE bytea, ALTER data SET STATISTICS 0;
ALTER TABLE texts ALTER text TYPE text, ALTER text SET STATISTICS 0, ALTER folded TYPE text, ALTER folded SET STATISTICS 0;
ALTER TABLE facts ALTER text TYPE text, ALTER text SET STATISTICS 0, ALTER topic TYPE text, ALTER topic SET STATISTICS 0,
    ALTER vector TYPE bytea, ALTER vector SET STATISTICS 0;
ALTER TABLE blobs ALTER data TYPE bytea, ALTER data SET STATISTICS 0;
ALTER TABLE blobs ALTER data SET STORAGE EXTERNAL;
ALTER TABLE chats ALTER name TYPE text, ALTER name SET STATISTICS 0, ALTER title TYPE text, ALTER title SET STATISTICS 0;
ALTER TABLE schedules ALTER data TYPE bytea, ALTER data SET STATISTICS 0;
ALTER TABLE gates ALTER reason TYPE text, ALTER reason SET STATISTICS 0;
ALTER TABLE gate_grants ALTER event TYPE text, ALTER event SET STATISTICS 0;
ALTER TABLE webhooks ALTER data TYPE bytea, ALTER data SET STATISTICS 0;
ALTER TABLE deliveries ALTER payload TYPE text, ALTER payload SET STATISTICS 0,
    ALTER failure TYPE text, ALTER failure SET STATISTICS 0;
ALTER TABLE agent_versions ALTER definition TYPE bytea, ALTER definition SET STATISTICS 0;
ALTER TABLE tenant_agents ALTER data TYPE bytea, ALTER data SET STATISTICS 0;
ALTER TABLE api_keys ALTER data TYPE bytea, ALTER data SET STATISTICS 0;
ALTER TABLE data_records ALTER data TYPE bytea, ALTER data SET STATISTICS 0;
ALTER TABLE audit ALTER line TYPE text, ALTER line SET STATISTICS 0;
