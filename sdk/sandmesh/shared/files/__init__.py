"""Files and directories: written whole, packed as tar streams, and left out by patterns."""
