"""The audit in the store: its newest entries, and who may read them."""
