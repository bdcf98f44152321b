"""What people see of the browser, and what they do to it."""
