"""All services of a mesh in one process."""

from sandmeshd.mesh.app import Mesh, open_mesh
from sandmeshd.mesh.settings import MeshSettings

__all__ = ["Mesh", "MeshSettings", "open_mesh"]
