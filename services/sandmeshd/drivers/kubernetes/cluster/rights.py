"""The rights that the driver's user needs, asked of the API server verb by verb before anything is started."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sandmesh.errors import RuntimeUnavailable
from sandmeshd.drivers.kubernetes.cluster.requests import Cluster
from sandmeshd.drivers.kubernetes.settings import KubernetesSettings

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@dataclass(frozen=True)
class Right:
    """What may be done with a kind of resources."""

    resource: str
    """As roles name it: `pods`, or `pods/log`."""
    verbs: tuple[str, ...]
    group: str = ""
    role: str = "Role"
    """ClusterRole, where the resources are in no namespace."""

    def rule(self) -> str:
        """Return the rule of a role that grants it."""
        group = self.group or '""'
        return f"{{apiGroups: [{group}], resources: [{self.resource}], verbs: [{', '.join(self.verbs)}]}}"


IN_NAMESPACE = (
    Right("pods/log", ("get",)),
    Right("secrets", ("get", "list", "create", "patch", "delete")),
    Right("events", ("list",)),
    Right("leases", ("get", "create", "patch", "delete"), "coordination.k8s.io"),
)
LIFE = ("get", "list", "watch", "create", "delete")
OF_PODS = (Right("pods", LIFE), Right("networkpolicies", ("create", "delete"), "networking.k8s.io"))
AGENT_SANDBOX = "extensions.agents.x-k8s.io"
OF_CLAIMS = (
    Right("sandboxclaims", LIFE, AGENT_SANDBOX),
    Right("sandboxwarmpools", ("get",), AGENT_SANDBOX),
    Right("sandboxtemplates", ("get",), AGENT_SANDBOX),
)
CLASSES = Right("runtimeclasses", ("list",), "node.k8s.io", "ClusterRole")
FORWARD = Right("pods/portforward", ("get", "create"))
"""Newer API servers want `create` beside `get` for a WebSocket."""


def needed_rights(settings: KubernetesSettings, *, forwards: bool) -> list[Right]:
    """Return the rights that the driver needs with some settings; `forwards`: agents are reached by port-forward."""
    classes = [CLASSES] if settings.runtime_class else []
    own = OF_CLAIMS if settings.warm_pools else OF_PODS
    return [*own, *IN_NAMESPACE, *([FORWARD] if forwards else []), *classes]


async def check_rights(cluster: Cluster, rights: Sequence[Right]) -> None:
    """Check that the driver's user has the rights.

    Raises:
        RuntimeUnavailable: Some lack; the message names role and verbs.
    """
    questions = [(right, verb) for right in rights for verb in right.verbs]
    answers = await asyncio.gather(*(_is_allowed(cluster, right, verb) for right, verb in questions))
    denied = [one for one, allowed in zip(questions, answers, strict=True) if not allowed]
    if denied:
        lacking = list(_grouped(denied))
        listed = "; ".join(f"{right.role} {right.resource}: {', '.join(right.verbs)}" for right in lacking)
        rules = "; ".join(f"{right.role}: {right.rule()}" for right in lacking)
        fix = f"add to the roles of the driver's user in {cluster.namespace}: {rules}"
        raise RuntimeUnavailable(f"the driver's user lacks rights ({listed}): {fix}", {"fix": fix, "rights": listed})


def _grouped(denied: Sequence[tuple[Right, str]]) -> Iterator[Right]:
    for right in dict.fromkeys(right for right, _ in denied):
        verbs = tuple(verb for other, verb in denied if other is right)
        yield Right(right.resource, verbs, right.group, right.role)


async def _is_allowed(cluster: Cluster, right: Right, verb: str) -> bool:
    resource, _, part = right.resource.partition("/")
    attributes = {"verb": verb, "group": right.group, "resource": resource, "subresource": part}
    if right.role == "Role":
        attributes["namespace"] = cluster.namespace
    kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    review = await cluster.create(REVIEWS, {**kind, "spec": {"resourceAttributes": attributes}})
    return bool(review["status"].get("allowed"))
