"""What services say of themselves: logs, metrics and phases of creates."""
