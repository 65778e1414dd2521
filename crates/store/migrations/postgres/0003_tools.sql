-- Tools of MCP servers as they were first seen, and as they were described last.
CREATE TABLE mcp_tools (
    project         TEXT COLLATE "C" NOT NULL,
    server          TEXT COLLATE "C" NOT NULL,
    tool            TEXT COLLATE "C" NOT NULL,
    known           TEXT NOT NULL,
    seen            TEXT NOT NULL,
    destructive     BOOLEAN NOT NULL,
    first_ms        BIGINT NOT NULL,
    changed_ms      BIGINT,
    accepted_by     TEXT,
    PRIMARY KEY (project, server, tool)
);
