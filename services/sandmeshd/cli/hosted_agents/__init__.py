"""`sandmesh worker`: sandboxes for agents that a vendor hosts."""
