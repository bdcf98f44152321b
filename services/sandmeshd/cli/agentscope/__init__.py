"""Commands by the names and options of AgentScope Runtime's sandbox module; each runs a command of `sandmesh`."""
