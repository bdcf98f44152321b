"""What the SDK shares with the services and the agent: frames, errors on the wire, tar streams, hosts and paths."""
