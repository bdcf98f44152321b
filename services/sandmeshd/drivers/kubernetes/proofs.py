"""What a cluster is said to do against what its pods show: a claim that they contradict is refused."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sandmesh.errors import RuntimeUnavailable, SandmeshError
from sandmeshd.drivers.kubernetes.cluster.canary import Canaries, CanaryResult, Facts, is_gvisor
from sandmeshd.drivers.kubernetes.cluster.requests import ApiRefusal, Cluster
from sandmeshd.drivers.kubernetes.settings import KubernetesSettings

VARIABLE = "SANDMESH_KUBERNETES_DECLARED"
POLICY, OOM, USERS = "network-policy", "single-process-oom", "user-namespaces"
WHAT = {
    POLICY: "a pod under the mesh's NetworkPolicy reached another one: the network plugin enforces none",
    OOM: "a process that took all memory of its pod ended the whole pod (singleProcessOOMKill is false)",
    USERS: "a pod with hostUsers: false runs in the machine's own user namespace",
}
KERNELS = {"gvisor": "gVisor's", "runsc": "gVisor's", "kata": "a virtual machine's own"}
"""Whose kernel a RuntimeClass promises, by what its name or handler has in it."""


@dataclass(frozen=True)
class Proofs:
    """What holds on a cluster, and who says so; None: no one does."""

    network_policy: CanaryResult | None = None
    single_process_oom: CanaryResult | None = None
    user_namespaces: CanaryResult | None = None
    isolation: str = "namespaces"
    """The boundary of sandboxes in the driver's own runtime class."""


NOTHING = Proofs()


async def prove(settings: KubernetesSettings, canaries: Canaries, handler: str) -> Proofs:
    """Try what the settings claim of a cluster; what they do not claim is not tried.

    `handler` is that of the driver's runtime class.

    Raises:
        RuntimeUnavailable: A pod shows the contrary, or nothing is known of what the posture rests on.
    """
    facts = Facts()
    if settings.runtime_class or {OOM, USERS} & {*settings.declared}:
        facts = await canaries.facts()
    needs_policy = settings.posture != "full"
    if needs_policy or POLICY in settings.declared:
        facts = replace(facts, network_policy=await canaries.network_policy())
    found = {POLICY: facts.network_policy, OOM: facts.single_process_oom, USERS: facts.user_namespaces}
    claims = {*settings.declared, *([POLICY] if needs_policy else [])}
    for claim in sorted(claims):
        if found[claim] is CanaryResult.CONTRADICTED:
            raise _refused(settings, claim)
    if needs_policy and POLICY not in settings.declared and facts.network_policy is CanaryResult.UNKNOWN:
        raise _unknown(settings)
    held = {name: found[name] if name in claims else None for name in found}
    isolation = await _isolation(settings, canaries.cluster, facts, handler)
    return Proofs(held[POLICY], held[OOM], held[USERS], isolation)


async def _isolation(settings: KubernetesSettings, cluster: Cluster, facts: Facts, handler: str) -> str:
    if not settings.runtime_class:
        return "namespaces"
    own = await node_kernel(cluster, facts.node) if facts.node else ""
    check_kernel(settings.runtime_class, handler, facts.kernel, own)
    if is_gvisor(facts.kernel):
        return "user-space kernel"
    # Another kernel than the machine's is one in a virtual machine.
    return "virtual machine" if own and facts.kernel and facts.kernel.split()[1] != own else "namespaces"


def check_kernel(runtime_class: str, handler: str, kernel: str, node: str = "") -> None:
    """Check that the kernel that a pod sees is one that its RuntimeClass promises.

    `node` is the release of its machine's kernel, empty where that is not known.

    Raises:
        RuntimeUnavailable: It is not.
    """
    words = f"{runtime_class} {handler}".lower()
    promised = next((whose for name, whose in KERNELS.items() if name in words), "")
    if not promised or not kernel:
        return
    release = kernel.split()[1]
    holds = is_gvisor(kernel) if promised == "gVisor's" else not is_gvisor(kernel) and release != node
    if not holds:
        fix = "look at its handler and at the runtime's configuration on the machines, or choose another class"
        message = f"pods of the RuntimeClass {runtime_class} see the kernel {kernel}, which is not {promised}: {fix}"
        raise RuntimeUnavailable(message, {"fix": fix, "kernel": kernel})


async def node_kernel(cluster: Cluster, node: str) -> str:
    """Return the release of a machine's own kernel, empty where the driver may not read it."""
    try:
        found = await cluster.get(f"/api/v1/nodes/{node}")
    except (SandmeshError, ApiRefusal):
        return ""
    return str(found["status"]["nodeInfo"]["kernelVersion"])


def _refused(settings: KubernetesSettings, claim: str) -> RuntimeUnavailable:
    fix = f"take {claim!r} out of {VARIABLE}, or see to it on the cluster"
    if claim not in settings.declared:
        fix = "use a network plugin that enforces NetworkPolicies, or a namespace for SANDMESH_KUBERNETES_POSTURE=full"
    return RuntimeUnavailable(f"{WHAT[claim]}: {fix}", {"fix": fix, "claim": claim})


def _unknown(settings: KubernetesSettings) -> RuntimeUnavailable:
    fix = f'see to it, or state it: {VARIABLE}=["{POLICY}"]'
    message = (
        f"in the posture {settings.posture} only a NetworkPolicy keeps user code from the network, and no pod could "
        f"show that it is enforced: {fix}"
    )
    return RuntimeUnavailable(message, {"fix": fix})
