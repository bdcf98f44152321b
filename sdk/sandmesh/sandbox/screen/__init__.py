"""The desktop of a sandbox, and the forms of models that use it."""
