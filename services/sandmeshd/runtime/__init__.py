"""What all services share: addresses, serving, errors, logging, paths."""
