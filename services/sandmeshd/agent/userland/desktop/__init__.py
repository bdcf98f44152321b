"""What desktops have beside user code."""
