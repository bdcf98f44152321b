"""What is fuzzed: a module for each kind of bytes."""
