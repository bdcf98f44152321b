"""A fleet: real services over simulated nodes, and what a claim costs as nodes and sandboxes grow."""
