"""The plan of a sandbox: its record, its agent's configuration and its pod, made before anything is started."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1.sandbox_pb2 import SandboxSpec
from sandmesh.errors import CapabilityMissing
from sandmeshd.drivers.kubernetes.agent_sandbox.claims import CLAIMS, claim
from sandmeshd.drivers.kubernetes.kinds import PODS
from sandmeshd.drivers.kubernetes.mesh_identity import MeshIdentity
from sandmeshd.drivers.kubernetes.names import object_name
from sandmeshd.drivers.kubernetes.pods.pod import AGENT_DIRECTORY, AGENT_PORT, POSTURES, pod
from sandmeshd.drivers.kubernetes.pods.start import Plan
from sandmeshd.drivers.kubernetes.proofs import NOTHING
from sandmeshd.drivers.kubernetes.requirements import enforced
from sandmeshd.drivers.kubernetes.settings import KubernetesSettings
from sandmeshd.drivers.kubernetes.templates import DriverTemplates
from sandmeshd.drivers.kubernetes.unmodified.sandboxes import UnmodifiedPods
from sandmeshd.drivers.node import agent_config as shared
from sandmeshd.drivers.node.agent_files import TLS, agent_files
from sandmeshd.drivers.node.identity import new_identity
from sandmeshd.drivers.node.records import SpecRecord
from sandmeshd.templates import Template


class Planner:
    """Makes plans of requests."""

    def __init__(
        self,
        settings: KubernetesSettings,
        templates: DriverTemplates,
        user_filter: bytes,
        identity: MeshIdentity | None = None,
    ) -> None:
        """`identity` is what agents wait for that have no configuration in their pods; None: theirs have it."""
        self._identity = identity
        self.unmodified = UnmodifiedPods(settings, templates.names)
        self.kind = CLAIMS if settings.warm_pools else PODS
        self.proofs = NOTHING
        self._settings = settings
        self._user_filter = user_filter
        self.templates = templates

    def examples(self) -> dict[str, dict[str, Any]]:
        """Return the pod of a sandbox that there is not in each posture, to ask the cluster about."""
        spec, image = SandboxSpec(template="base"), self.templates.any_image()
        each = {name: self._settings.model_copy(update={"posture": name}) for name in POSTURES}
        return {name: pod(own, "example", spec, image, own.runtime_class) for name, own in each.items()}

    async def plan(self, request: pb.CreateSandboxRequest, template: Template, able: Mapping[str, str]) -> Plan:
        """Return the plan of a sandbox.

        Raises:
            CapabilityMissing, RuntimeUnavailable: As `DriverTemplates.runtime_class`, and with an image as
                `UnmodifiedPods.find`.
            InvalidArgument, PermissionDenied: As `UnmodifiedPods.find`.
        """
        runtime_class = await self.templates.runtime_class(template)
        spec = request.spec
        own = await self.unmodified.find(spec, template) if spec.image else None
        # Its endpoint is known only once the pod has an address.
        sandbox = shared.new_sandbox(request, "", enforced(spec.limits, able, self._settings.posture))
        config = self._config(sandbox, template, request.fencing_token)
        if own is not None:
            self.unmodified.configure(config, own, template, sandbox)
        else:
            shared.let_out(sandbox, config, template, self._settings.egress)
        sandbox.enforced["network"] = sandbox.enforced["network"].replace("own namespace", self._walls())
        identity, mesh = new_identity(), self._identity if own is None else self.unmodified.identity
        image = self.templates.image(template)
        birth, files = None, {**agent_files(config), TLS: identity.pem}
        if mesh is not None:
            config.tls_file, config.tls_identity = "", identity.pem
            birth, files = (config, mesh.context), {}
        if self._settings.warm_pools:
            body = claim(self._settings.paths.mesh_id, sandbox, self._pool(template, runtime_class))
        else:
            pin = mesh.pin if mesh else ""
            # In the lowest posture no Secret is mounted, which root inside could read.
            lowest = {"posture": "restricted"} if own is not None else {}
            settings = self._settings.model_copy(update=lowest)
            body = pod(settings, request.sandbox_id, spec, image, runtime_class, pin)
        if own is not None:
            image, body = own.pinned, self.unmodified.pod(body, own, template, spec)
        handler = await self.templates.handler(runtime_class)
        record = SpecRecord(sandbox, request.fencing_token)
        name = object_name(self._settings.paths.mesh_id, request.sandbox_id)
        return Plan(record, name, self.kind, body, image, files, identity, birth, runtime_class, handler)

    def _config(self, sandbox: pb.RuntimeSandbox, template: Template, fencing_token: int) -> agent_pb2.AgentConfig:
        config = shared.agent_config(sandbox, AGENT_DIRECTORY, template)
        config.fencing_token = fencing_token
        config.seccomp_filter = self._user_filter
        config.user_id, config.max_processes = shared.USER_ID, sandbox.spec.limits.pids
        config.listen, config.tls_file = f"tls://0.0.0.0:{AGENT_PORT}", f"{AGENT_DIRECTORY}/{TLS}"
        return config

    def _walls(self) -> str:
        """Return what keeps user code from its pod's network."""
        found = self.proofs.network_policy
        rule = [] if self._settings.posture != "full" else ["routing rule in its namespace"]
        return ", ".join([*rule, *([f"NetworkPolicy, {found.value}"] if found else [])])

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
