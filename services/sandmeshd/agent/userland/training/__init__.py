"""The processes of training environments: one that imports an environment, and one for each of its instances."""
