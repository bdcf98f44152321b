"""What runs in E2B's sandboxes beside user code, as its clients see it: files, processes and directories."""
