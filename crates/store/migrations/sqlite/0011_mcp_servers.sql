-- MCP servers whose tools were seen. Once a list was seen to its end, a tool that comes later was added.
CREATE TABLE mcp_servers (
    project         TEXT NOT NULL,
    server          TEXT NOT NULL,
    complete_ms     BIGINT,
    PRIMARY KEY (project, server)
);
