"""What every command shares: options, output, progress and exit codes."""
