"""The door for Jupyter Server's gateway protocol: kernels of notebooks run in sandboxes."""
