"""A deployment and a runtime of SWE-ReX (swerex): sessions of bash, commands and files in a sandbox."""

from sandmesh.integrations.swe_rex.deployment import SandmeshDeployment, SandmeshDeploymentConfig, SandmeshRuntime

__all__ = ["SandmeshDeployment", "SandmeshDeploymentConfig", "SandmeshRuntime"]
