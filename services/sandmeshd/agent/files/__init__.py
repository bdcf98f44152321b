"""Calls on files: what `box.fs` is made of. They carry bytes and facts where the file tools carry text for models."""
