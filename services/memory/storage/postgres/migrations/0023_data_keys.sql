-- Keys that tenants' texts are encrypted with, wrapped by a master key. None is ever changed.

CREATE TABLE data_keys (
    tenant text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    key_id text COLLATE "C" NOT NULL UNIQUE,
    created_at bigint NOT NULL,
    wrapped text NOT NULL,
    PRIMARY KEY (tenant, version)
);

-- What all that is stored was last brought to.
CREATE TABLE encryption_goal (goal text NOT NULL);
INSERT INTO encryption_goal VALUES ('');
