-- How long a call's answer took to begin, and why a call failed: the provider's HTTP status, or what
-- happened to the connection.
ALTER TABLE calls ADD COLUMN first_ms BIGINT;
ALTER TABLE calls ADD COLUMN cause TEXT;
