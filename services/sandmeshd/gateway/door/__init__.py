"""The public address: authentication, addresses, forwarding of public RPCs, and local sockets."""
