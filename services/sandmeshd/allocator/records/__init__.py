"""Records of sandboxes and the steps that they take in the store."""
