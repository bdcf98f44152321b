"""Templates that a program registers."""
