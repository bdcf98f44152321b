"""What drivers on a machine do alike for sandboxes whose root is an image."""
