"""Background work that keeps records and runtimes the same."""
