"""Tools as functions: a sandbox's, an MCP server's and the program's own."""
