"""What sandboxes see of their node: directories and files of the host, volumes, data, and their template's user."""
