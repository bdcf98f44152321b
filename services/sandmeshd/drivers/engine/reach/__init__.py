"""How the agents of containers are reached: by sockets of this machine, or over a network."""
