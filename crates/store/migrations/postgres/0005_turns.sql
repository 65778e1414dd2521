-- How often a scope's standing was changed: whoever knows less of that does not overwrite a kill, however
-- often he has written meanwhile.
ALTER TABLE scopes ADD COLUMN turns BIGINT NOT NULL DEFAULT 0;
