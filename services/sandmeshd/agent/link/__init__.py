"""The links of gateways and drivers to an agent."""
