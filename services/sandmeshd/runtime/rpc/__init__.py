"""gRPC servers, channels and interceptors of the services."""
