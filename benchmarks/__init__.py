"""Programs that print tables of figures; nothing here is asserted by a test."""
