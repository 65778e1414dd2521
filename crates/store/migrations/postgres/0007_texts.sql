-- What MCP servers say about their tools, as it was accepted and as it was said last, and what is odd about it.
ALTER TABLE mcp_tools ADD COLUMN known_text TEXT NOT NULL DEFAULT '';
ALTER TABLE mcp_tools ADD COLUMN seen_text TEXT NOT NULL DEFAULT '';
ALTER TABLE mcp_tools ADD COLUMN notes TEXT NOT NULL DEFAULT '';
