"""The agentrun driver: a sandbox is an agent runtime of Alibaba Cloud's AgentRun."""
