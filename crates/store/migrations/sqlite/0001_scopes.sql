-- A scope's state is a blob with a version of its own; what people search by stands beside it.
CREATE TABLE scopes (
    key         TEXT PRIMARY KEY,
    kind        TEXT NOT NULL,
    agent       TEXT NOT NULL,
    name        TEXT NOT NULL,
    killed      BIGINT NOT NULL DEFAULT 0,
    updated_ms  BIGINT NOT NULL,
    state       BLOB NOT NULL
);
CREATE INDEX scopes_by_kind ON scopes (kind, updated_ms);

-- A trip that blocked or killed.
CREATE TABLE incidents (
    id          TEXT PRIMARY KEY,
    at_ms       BIGINT NOT NULL,
    agent       TEXT NOT NULL,
    session     TEXT NOT NULL,
    guard       TEXT NOT NULL,
    reason      TEXT NOT NULL,
    verdict     TEXT NOT NULL,
    sentence    TEXT NOT NULL,
    trip        TEXT NOT NULL
);
CREATE INDEX incidents_by_time ON incidents (at_ms);
