"""Code that the SDK shares with the services and the agent: frames, wire errors, tar streams, hosts, paths, types."""
