"""The plan of a sandbox: its record, its agent's configuration and its pod, made before anything is started."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1.sandbox_pb2 import SandboxSpec
from sandmesh.errors import CapabilityMissing
from sandmeshd.drivers.kubernetes.agent_sandbox.claims import CLAIMS, claim
from sandmeshd.drivers.kubernetes.kinds import PODS
from sandmeshd.drivers.kubernetes.names import object_name
from sandmeshd.drivers.kubernetes.pod import AGENT_DIRECTORY, AGENT_PORT, pod
from sandmeshd.drivers.kubernetes.requirements import enforced
from sandmeshd.drivers.kubernetes.settings import KubernetesSettings
from sandmeshd.drivers.kubernetes.start import Plan
from sandmeshd.drivers.kubernetes.templates import Templates
from sandmeshd.drivers.node import agent_config as shared
from sandmeshd.drivers.node.agent_files import TLS, agent_files
from sandmeshd.drivers.node.identity import new_identity
from sandmeshd.drivers.node.records import Record
from sandmeshd.templates import Template


class Planner:
    """Makes plans of requests."""

    def __init__(
        self,
        settings: KubernetesSettings,
        templates: Templates,
        user_filter: bytes,
        birth: ssl.SSLContext | None = None,
    ) -> None:
        """`birth` shows the mesh's certificate to agents in warm pools; None: each sandbox is a pod of its own."""
        self._birth = birth
        self.kind = PODS if birth is None else CLAIMS
        self._settings = settings
        self._user_filter = user_filter
        self.templates = templates

    def example(self) -> dict[str, Any]:
        """Return the pod of a sandbox that there is not, to ask the cluster about."""
        spec = SandboxSpec(template="base")
        return pod(self._settings, "example", spec, self.templates.any_image(), self._settings.runtime_class)

    async def plan(self, request: pb.CreateSandboxRequest, template: Template, able: Mapping[str, str]) -> Plan:
        """Return the plan of a sandbox.

        Raises:
            CapabilityMissing, RuntimeUnavailable: As `Templates.runtime_class`.
        """
        runtime_class = await self.templates.runtime_class(template)
        # Its endpoint is known only once the pod has an address.
        sandbox = shared.new_sandbox(request, "", enforced(request.spec.limits, able))
        config = shared.agent_config(sandbox, AGENT_DIRECTORY, template)
        config.fencing_token = request.fencing_token
        config.seccomp_filter = self._user_filter
        config.user_id = shared.USER_ID
        config.listen, config.tls_file = f"tls://0.0.0.0:{AGENT_PORT}", f"{AGENT_DIRECTORY}/{TLS}"
        shared.let_out(sandbox, config, template, self._settings.egress)
        rule = "routing rule in its namespace"
        sandbox.enforced["network"] = sandbox.enforced["network"].replace("own namespace", rule)
        identity = new_identity()
        image = self.templates.image(template)
        name = object_name(self._settings.paths.mesh_id, request.sandbox_id)
        record = Record(sandbox, request.fencing_token)
        if self._birth is not None:
            body = claim(self._settings.paths.mesh_id, sandbox, self._pool(template, runtime_class))
            config.tls_file, config.tls_identity = "", identity.pem
            return Plan(record, name, self.kind, body, image, {}, identity, (config, self._birth))
        body = pod(self._settings, request.sandbox_id, request.spec, image, runtime_class)
        files = {**agent_files(config), TLS: identity.pem}
        return Plan(record, name, self.kind, body, image, files, identity)

    def _pool(self, template: Template, runtime_class: str) -> str:
        if runtime_class:
            message = f"the runtime class of a warm pool's pods is its SandboxTemplate's: drop {runtime_class!r}"
            raise CapabilityMissing(message, {"needs": "runtime_class", "template": template.name})
        pool = self._settings.warm_pools.get(template.name)
        if pool is None:
            known = ", ".join(sorted(self._settings.warm_pools))
            message = f"the template {template.name!r} has no warm pool: name one in SANDMESH_KUBERNETES_WARM_POOLS"
            raise CapabilityMissing(message, {"needs": "warm pool", "template": template.name, "known": known})
        return pool
