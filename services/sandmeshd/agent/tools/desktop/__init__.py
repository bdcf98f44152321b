"""The desktop of a sandbox: an X server without a TCP port, a window manager and a panel, each started when needed."""
