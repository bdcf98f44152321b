"""Sandboxes as claims on the operator's templates and warm pools: kubernetes-sigs/agent-sandbox, v1beta1."""
