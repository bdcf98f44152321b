"""Recordings: a video of the screen, and a trace of the calls with a picture after each."""
