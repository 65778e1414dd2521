-- The control plane. Times are milliseconds, money is nano-dollars, JSON and names are text; every
-- row carries its project. PostgreSQL has the same tables: change both.

CREATE TABLE projects (
    name        TEXT PRIMARY KEY,
    opened_ms   BIGINT NOT NULL
);

-- Small numbers that must never be given out twice, such as a node's.
CREATE TABLE counters (
    name        TEXT PRIMARY KEY,
    value       BIGINT NOT NULL
);

ALTER TABLE scopes ADD COLUMN project TEXT NOT NULL DEFAULT 'default';
ALTER TABLE scopes ADD COLUMN number BIGINT NOT NULL DEFAULT 0;
CREATE INDEX scopes_by_agent ON scopes (project, agent);

CREATE TABLE agents (
    number          INTEGER PRIMARY KEY,
    project         TEXT NOT NULL,
    name            TEXT NOT NULL,
    opened_ms       BIGINT NOT NULL,
    used_ms         BIGINT NOT NULL,
    tags            TEXT NOT NULL DEFAULT '[]',
    active          BOOLEAN NOT NULL DEFAULT TRUE,
    deactivated_by  TEXT,
    deactivated_ms  BIGINT,
    calls           BIGINT NOT NULL DEFAULT 0,
    loops           BIGINT NOT NULL DEFAULT 0,
    incidents       BIGINT NOT NULL DEFAULT 0,
    tokens          BIGINT NOT NULL DEFAULT 0,
    cost            BIGINT NOT NULL DEFAULT 0,
    UNIQUE (project, name)
);

CREATE TABLE sessions (
    number          INTEGER PRIMARY KEY,
    project         TEXT NOT NULL,
    agent_number    BIGINT NOT NULL,
    agent           TEXT NOT NULL,
    name            TEXT NOT NULL,
    opened_ms       BIGINT NOT NULL,
    used_ms         BIGINT NOT NULL,
    state           TEXT NOT NULL,
    why             TEXT,
    tags            TEXT NOT NULL DEFAULT '[]',
    provider        TEXT,
    model           TEXT,
    calls           BIGINT NOT NULL DEFAULT 0,
    loops           BIGINT NOT NULL DEFAULT 0,
    incidents       BIGINT NOT NULL DEFAULT 0,
    tokens          BIGINT NOT NULL DEFAULT 0,
    cost            BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX sessions_by_project ON sessions (project, number);
CREATE INDEX sessions_by_agent ON sessions (agent_number, number);
CREATE INDEX sessions_by_name ON sessions (project, agent, name, number);
CREATE INDEX sessions_by_state ON sessions (project, state, number);

-- One row a call, kept small. kind: 0 model, 1 tool. verdict: 0 allow, 1 warn, 2 block, 3 kill.
-- status: 0 ok, 1 error, 2 fault, 3 cancelled; none while it runs and when it never ran.
CREATE TABLE calls (
    id              INTEGER PRIMARY KEY,
    agent_number    BIGINT NOT NULL,
    session_number  BIGINT NOT NULL,
    position        BIGINT NOT NULL,
    at_ms           BIGINT NOT NULL,
    duration_ms     BIGINT,
    input           BIGINT NOT NULL DEFAULT 0,
    output          BIGINT NOT NULL DEFAULT 0,
    cache_read      BIGINT NOT NULL DEFAULT 0,
    cache_write     BIGINT NOT NULL DEFAULT 0,
    cost            BIGINT NOT NULL DEFAULT 0,
    kind            SMALLINT NOT NULL,
    verdict         SMALLINT NOT NULL,
    status          SMALLINT,
    project         TEXT NOT NULL,
    name            TEXT NOT NULL,
    server          TEXT,
    nested          TEXT,
    guard           TEXT,
    reason          TEXT,
    incident        TEXT,
    facts           BLOB
);
CREATE INDEX calls_by_project ON calls (project, id);
CREATE INDEX calls_by_agent ON calls (agent_number, id);
CREATE INDEX calls_by_session ON calls (session_number, id);
CREATE INDEX calls_by_guard ON calls (project, guard, id) WHERE guard IS NOT NULL;
CREATE INDEX calls_by_agent_guard ON calls (agent_number, guard, id) WHERE guard IS NOT NULL;

-- What calls came to, by day: so that a page about money need not read a million calls.
CREATE TABLE costs (
    project         TEXT NOT NULL,
    day             BIGINT NOT NULL,
    agent_number    BIGINT NOT NULL,
    provider        TEXT NOT NULL,
    model           TEXT NOT NULL,
    calls           BIGINT NOT NULL,
    input           BIGINT NOT NULL,
    output          BIGINT NOT NULL,
    cache_read      BIGINT NOT NULL,
    cache_write     BIGINT NOT NULL,
    cost            BIGINT NOT NULL,
    PRIMARY KEY (project, day, agent_number, provider, model)
);

-- Request and answer of a call, secrets removed before they got here.
CREATE TABLE payloads (
    call_id         INTEGER PRIMARY KEY,
    project         TEXT NOT NULL,
    request         TEXT,
    response        TEXT,
    request_chars   BIGINT NOT NULL,
    response_chars  BIGINT NOT NULL,
    request_cut     BOOLEAN NOT NULL,
    response_cut    BOOLEAN NOT NULL
);
CREATE INDEX payloads_by_project ON payloads (project, call_id);

ALTER TABLE incidents ADD COLUMN project TEXT NOT NULL DEFAULT 'default';
ALTER TABLE incidents ADD COLUMN session_number BIGINT;
ALTER TABLE incidents ADD COLUMN call_id BIGINT;
ALTER TABLE incidents ADD COLUMN provider TEXT;
ALTER TABLE incidents ADD COLUMN acknowledged_by TEXT;
ALTER TABLE incidents ADD COLUMN acknowledged_ms BIGINT;
ALTER TABLE incidents ADD COLUMN acknowledged_note TEXT;
CREATE INDEX incidents_by_project ON incidents (project, at_ms, id);
CREATE INDEX incidents_by_agent ON incidents (project, agent, at_ms, id);
CREATE INDEX incidents_by_session ON incidents (session_number, at_ms, id);
CREATE INDEX incidents_by_guard ON incidents (project, guard, at_ms, id);
CREATE INDEX incidents_by_group ON incidents (project, agent, guard, reason, at_ms, acknowledged_ms);
DROP INDEX incidents_by_time;

-- The calls that an incident is about, in order.
CREATE TABLE evidence (
    incident        TEXT NOT NULL,
    position        BIGINT NOT NULL,
    project         TEXT NOT NULL,
    at_ms           BIGINT NOT NULL,
    call_id         BIGINT,
    request         TEXT,
    response        TEXT,
    request_chars   BIGINT NOT NULL,
    response_chars  BIGINT NOT NULL,
    request_cut     BOOLEAN NOT NULL,
    response_cut    BOOLEAN NOT NULL,
    PRIMARY KEY (incident, position)
);
CREATE INDEX evidence_by_time ON evidence (project, at_ms);

-- Every version of every policy document; an empty agent is the project's default, a document that
-- is NULL goes back to the default. Nothing is ever deleted here.
CREATE TABLE policy_versions (
    project         TEXT NOT NULL,
    agent           TEXT NOT NULL,
    version         BIGINT NOT NULL,
    at_ms           BIGINT NOT NULL,
    who             TEXT NOT NULL,
    note            TEXT NOT NULL,
    document        TEXT,
    PRIMARY KEY (project, agent, version)
);

-- What the current documents say, for whoever reads the database: written with each version.
CREATE TABLE prevention_configs (
    id                        TEXT PRIMARY KEY DEFAULT (lower(
        hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2) ||
        '-a' || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6)))),
    project_id                TEXT NOT NULL,
    agent_name                TEXT,        -- NULL = project default
    loop_enabled              BOOLEAN NOT NULL DEFAULT TRUE,
    loop_threshold            INTEGER NOT NULL DEFAULT 5,
    loop_action               TEXT NOT NULL DEFAULT 'warn',
    loop_max_steps            INTEGER,
    budget_max_cost_usd       NUMERIC(10, 6),
    budget_soft_alert_usd     NUMERIC(10, 6),
    budget_max_wall_time_secs INTEGER,
    cb_enabled                BOOLEAN NOT NULL DEFAULT TRUE,
    cb_open_after_failures    INTEGER NOT NULL DEFAULT 5,
    cb_cooldown_seconds       INTEGER NOT NULL DEFAULT 30,
    cb_half_open_max_calls    INTEGER NOT NULL DEFAULT 3,
    created_at                TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP,
    updated_at                TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP,
    UNIQUE (project_id, agent_name)
);
-- Two NULLs are never equal, but a project has one default.
CREATE UNIQUE INDEX prevention_configs_default
    ON prevention_configs (project_id, coalesce(agent_name, ''));

-- The secret itself is never here, only its SHA-256.
CREATE TABLE keys (
    id              TEXT PRIMARY KEY,
    project         TEXT NOT NULL,
    role            TEXT NOT NULL,
    agent           TEXT,
    name            TEXT NOT NULL,
    digest          BLOB NOT NULL,
    made_ms         BIGINT NOT NULL,
    made_by         TEXT NOT NULL,
    used_ms         BIGINT,
    revoked_ms      BIGINT,
    revoked_by      TEXT
);
CREATE INDEX keys_by_project ON keys (project, made_ms, id);

-- Browsers that are logged in; the id is the SHA-256 of the cookie.
CREATE TABLE logins (
    id              TEXT PRIMARY KEY,
    project         TEXT NOT NULL,
    key_id          TEXT NOT NULL,
    csrf            TEXT NOT NULL,
    made_ms         BIGINT NOT NULL,
    used_ms         BIGINT NOT NULL,
    expires_ms      BIGINT NOT NULL
);
CREATE INDEX logins_by_key ON logins (key_id);
CREATE INDEX logins_by_end ON logins (project, expires_ms);

CREATE TABLE alert_targets (
    id              INTEGER PRIMARY KEY,
    project         TEXT NOT NULL,
    agent           TEXT,
    kind            TEXT NOT NULL,
    name            TEXT NOT NULL,
    active          BOOLEAN NOT NULL,
    events          TEXT NOT NULL,
    settings        TEXT NOT NULL,
    made_ms         BIGINT NOT NULL,
    changed_ms      BIGINT NOT NULL
);
CREATE INDEX alert_targets_by_project ON alert_targets (project, id);

-- The outbox: a message waits here until it is delivered or given up. A claim moves due_ms ahead, so
-- that what a node took and never finished comes up again.
CREATE TABLE alert_deliveries (
    id              INTEGER PRIMARY KEY,
    project         TEXT NOT NULL,
    target          BIGINT NOT NULL,
    event           TEXT NOT NULL,
    agent           TEXT,
    session         TEXT,
    incident        TEXT,
    bunch           TEXT NOT NULL,
    body            TEXT NOT NULL,
    times           BIGINT NOT NULL,
    made_ms         BIGINT NOT NULL,
    last_ms         BIGINT NOT NULL,
    due_ms          BIGINT NOT NULL,
    attempts        BIGINT NOT NULL,
    state           TEXT NOT NULL,
    answer          TEXT,
    done_ms         BIGINT
);
CREATE INDEX alert_deliveries_due ON alert_deliveries (due_ms) WHERE state = 'waiting';
CREATE INDEX alert_deliveries_bunch ON alert_deliveries (target, bunch) WHERE state = 'waiting';
CREATE INDEX alert_deliveries_by_project ON alert_deliveries (project, id);

-- Who did what and why. One chain of hashes a project; nothing is ever deleted or changed here.
CREATE TABLE audit (
    project         TEXT NOT NULL,
    seq             BIGINT NOT NULL,
    number          BIGINT NOT NULL,
    at_ms           BIGINT NOT NULL,
    who             TEXT NOT NULL,
    action          TEXT NOT NULL,
    subject         TEXT NOT NULL,
    reason          TEXT NOT NULL,
    detail          TEXT NOT NULL,
    prev            TEXT NOT NULL,
    hash            TEXT NOT NULL,
    PRIMARY KEY (project, seq),
    UNIQUE (project, number)
);

-- The last entry of each chain, to notice when its end was cut off.
CREATE TABLE audit_heads (
    project         TEXT PRIMARY KEY,
    seq             BIGINT NOT NULL,
    hash            TEXT NOT NULL
);

CREATE TABLE settings (
    project         TEXT NOT NULL,
    name            TEXT NOT NULL,
    value           TEXT NOT NULL,
    changed_ms      BIGINT NOT NULL,
    who             TEXT NOT NULL,
    PRIMARY KEY (project, name)
);
