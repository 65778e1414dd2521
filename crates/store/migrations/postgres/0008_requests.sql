-- The list of requests is read by model or tool and by verdict, of all agents and of one. Most calls are
-- allowed, so that a list of those needs no index.
-- A name may be longer than an index's row in PostgreSQL: its beginning is enough.
CREATE INDEX calls_by_name ON calls (project, substr(name, 1, 200), id);
CREATE INDEX calls_by_agent_name ON calls (agent_number, substr(name, 1, 200), id);
CREATE INDEX calls_by_verdict ON calls (project, verdict, id) WHERE verdict <> 0;
CREATE INDEX calls_by_agent_verdict ON calls (agent_number, verdict, id) WHERE verdict <> 0;

-- The whole request body of the call that tripped, shortened, secrets removed before it got here.
ALTER TABLE evidence ADD COLUMN body TEXT;
ALTER TABLE evidence ADD COLUMN body_chars BIGINT NOT NULL DEFAULT 0;
ALTER TABLE evidence ADD COLUMN body_cut BOOLEAN NOT NULL DEFAULT FALSE;

-- What this program wrote into a row: columns that say something else were changed by hand.
ALTER TABLE prevention_configs ADD COLUMN written TEXT;
