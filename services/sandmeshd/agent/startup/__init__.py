"""What a fresh agent prepares before its first call."""
