"""The control plane of E2B's clients: sandboxes, snapshots, and what is known of them."""
