"""The console: pages by which people see and use what a mesh has."""
