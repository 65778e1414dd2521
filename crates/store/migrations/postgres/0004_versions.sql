-- Which of several nodes saw a scope last: what is older does not overwrite what is newer.
ALTER TABLE scopes ADD COLUMN version BIGINT NOT NULL DEFAULT 0;
ALTER TABLE agents ADD COLUMN version BIGINT NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN version BIGINT NOT NULL DEFAULT 0;
