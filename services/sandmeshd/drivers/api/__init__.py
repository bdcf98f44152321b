"""The contract of drivers: their interface, and the same interface served and called over gRPC."""
