"""Routes to sandboxes: links to agents, paused sandboxes, reports of activity, and the calls that each has."""
