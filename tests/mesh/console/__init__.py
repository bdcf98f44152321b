"""The console, as people and as pages of others meet it."""
