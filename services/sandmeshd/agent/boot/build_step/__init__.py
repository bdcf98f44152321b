"""PID 1 of a step of an image's build: it runs a command or copies files, and writes what changed as a layer."""
