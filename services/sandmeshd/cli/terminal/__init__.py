"""Options, output, progress and exit codes of every command."""
