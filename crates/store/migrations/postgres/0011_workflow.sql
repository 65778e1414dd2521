-- What people do about an incident: it is given to someone, resolved, or muted together with all that are
-- alike (agent, guard, and what it is about: a tool, or the guard's code for why).
ALTER TABLE incidents ADD COLUMN about TEXT COLLATE "C" NOT NULL DEFAULT '';
UPDATE incidents SET about = reason;
ALTER TABLE incidents ADD COLUMN assignee TEXT;
ALTER TABLE incidents ADD COLUMN resolved_ms BIGINT;
ALTER TABLE incidents ADD COLUMN resolved_by TEXT;
ALTER TABLE incidents ADD COLUMN resolved_note TEXT;
ALTER TABLE incidents ADD COLUMN resolution TEXT;
DROP INDEX incidents_by_group;
CREATE INDEX incidents_by_group
    ON incidents (project, agent, guard, about, at_ms, last_ms, acknowledged_ms, resolved_ms);

CREATE TABLE incident_mutes (
    project         TEXT COLLATE "C" NOT NULL,
    agent           TEXT COLLATE "C" NOT NULL,
    guard           TEXT COLLATE "C" NOT NULL,
    about           TEXT COLLATE "C" NOT NULL,
    at_ms           BIGINT NOT NULL,
    until_ms        BIGINT,
    muted_by        TEXT NOT NULL,
    reason          TEXT NOT NULL,
    PRIMARY KEY (project, agent, guard, about)
);
