"""The connection of a program to a mesh: addresses, channels, local sockets and the private mesh."""
