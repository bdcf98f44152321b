"""Background work that keeps records and runtimes consistent."""
