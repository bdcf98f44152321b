"""The audit at the door: which RPCs are recorded, what is recorded of them, and where to."""
