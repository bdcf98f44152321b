"""The pods of sandboxes: their form, start, states and deletion."""
