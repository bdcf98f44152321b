"""Calls: their events, their results, and the stream that carries them."""
