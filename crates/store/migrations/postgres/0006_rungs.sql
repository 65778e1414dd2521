-- An incident grows: all steps of one loop are one incident. strictness: 0 allow, 1 warn, 2 steer, 3 ask,
-- 4 block, 5 kill.
ALTER TABLE incidents ADD COLUMN last_ms BIGINT NOT NULL DEFAULT 0;
ALTER TABLE incidents ADD COLUMN strictness BIGINT NOT NULL DEFAULT 4;
UPDATE incidents SET last_ms = at_ms;
UPDATE incidents SET strictness = 5 WHERE verdict = 'kill';
DROP INDEX incidents_by_group;
CREATE INDEX incidents_by_group
    ON incidents (project, agent, guard, reason, at_ms, last_ms, acknowledged_ms);

-- What was done about an incident: one row for each verdict.
CREATE TABLE incident_rungs (
    incident        TEXT COLLATE "C" NOT NULL,
    strictness      BIGINT NOT NULL,
    project         TEXT COLLATE "C" NOT NULL,
    at_ms           BIGINT NOT NULL,
    last_ms         BIGINT NOT NULL,
    count_first     BIGINT NOT NULL,
    count_last      BIGINT NOT NULL,
    count_limit     BIGINT NOT NULL,
    sentence        TEXT NOT NULL,
    advice          TEXT,
    call_id         BIGINT,
    last_call_id    BIGINT,
    PRIMARY KEY (incident, strictness)
);
CREATE INDEX incident_rungs_by_time ON incident_rungs (project, last_ms);
