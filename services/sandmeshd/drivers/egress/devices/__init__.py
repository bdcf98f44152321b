"""Android devices that the administrator attached: who holds each, and the adb requests that its holder may make."""
