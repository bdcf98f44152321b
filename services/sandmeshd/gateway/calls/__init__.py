"""Calls: their streams and sockets, and the relay of each to an agent."""
