"""What `sandmesh.integrations.swe_rex` uses of the package."""

class DeploymentHook:
    def on_custom_step(self, message: str) -> None: ...

class CombinedDeploymentHook(DeploymentHook):
    def add_hook(self, hook: DeploymentHook) -> None: ...
