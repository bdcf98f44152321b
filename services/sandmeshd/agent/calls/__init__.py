"""The calls of a sandbox: their numbered events, their input, and the tools that they run."""
