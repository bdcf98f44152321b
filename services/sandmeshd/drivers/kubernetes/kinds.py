"""The kinds of resources that a sandbox can be: a pod of the driver's own, or a claim of agent-sandbox."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sandmeshd.drivers.kubernetes.cluster.requests import Cluster
from sandmeshd.drivers.kubernetes.pods.reasons import status_of


@dataclass(frozen=True)
class ResourceKind:
    """A kind of resources, and what the driver reads of one."""

    plural: str
    kind: str
    version: str
    """With its group, as `v1`."""
    as_pod: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    """Return a resource as the pod that it is, or stands for, with what the driver reads of it."""
    propagation: str = ""
    """How what it owns is deleted with it, as `Foreground`: before it; empty: as the API server does by itself."""

    def path(self, cluster: Cluster, name: str = "") -> str:
        """Return the path of all in the namespace, or of one."""
        root = "/apis" if "/" in self.version else "/api"
        return cluster.path(self.plural, name, f"{root}/{self.version}")


def kept_metadata(resource: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the driver reads of a resource's metadata: thousands are kept."""
    metadata = resource["metadata"]
    names = ("name", "uid", "resourceVersion", "annotations", "deletionTimestamp")
    return {name: metadata[name] for name in names if name in metadata}


def _slim(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"metadata": kept_metadata(pod), "status": status_of(pod)}


PODS = ResourceKind("pods", "Pod", "v1", _slim)
