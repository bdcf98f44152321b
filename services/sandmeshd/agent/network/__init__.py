"""The network of a sandbox: the agent's part of the egress proxy, and exposed ports."""
