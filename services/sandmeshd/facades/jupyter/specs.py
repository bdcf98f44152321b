"""The kernels that clients choose from, and what each says of its language."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from sandmesh.shared.version import __version__
from sandmeshd.facades.jupyter.messages import VERSION

DEFAULT: Final = "python3"
_LANGUAGES_TEMPLATE: Final = "languages"


@dataclass(frozen=True)
class KernelSpec:
    """A kind of kernel, as Jupyter's kernel specifications name it."""

    name: str
    language: str
    """Its name among the kernels of sandboxes."""
    title: str
    extension: str
    mime_type: str
    highlight: str
    """The name of its mode of CodeMirror and its lexer of Pygments."""

    def described(self) -> dict[str, Any]:
        """Return it as `GET /api/kernelspecs` has it."""
        spec: dict[str, Any] = {
            "argv": list[str](),
            "env": dict[str, str](),
            "display_name": f"{self.title} (sandbox)",
            "language": self.language,
            "interrupt_mode": "message",
            "metadata": {"debugger": False},
        }
        return {"name": self.name, "spec": spec, "resources": dict[str, str]()}

    def info(self) -> dict[str, Any]:
        """Return the content of a kernel_info_reply."""
        is_python = self.language == "python"
        language = {
            "name": self.language,
            "version": "3" if is_python else "",
            "mimetype": self.mime_type,
            "file_extension": self.extension,
            "pygments_lexer": "ipython3" if is_python else self.highlight,
            "codemirror_mode": {"name": "ipython", "version": 3} if is_python else self.highlight,
            "nbconvert_exporter": "python" if is_python else "script",
        }
        return {
            "status": "ok",
            "protocol_version": VERSION,
            "implementation": "sandmesh",
            "implementation_version": __version__,
            "language_info": language,
            "banner": f"{self.title} in a sandbox of sandmesh {__version__}",
            "help_links": list[dict[str, str]](),
            "debugger": False,
        }


_OWN: Final = (
    KernelSpec(DEFAULT, "python", "Python 3", ".py", "text/x-python", "python"),
    KernelSpec("javascript", "javascript", "JavaScript", ".js", "application/javascript", "javascript"),
    KernelSpec("typescript", "typescript", "TypeScript", ".ts", "application/typescript", "typescript"),
    KernelSpec("bash", "bash", "Bash", ".sh", "text/x-sh", "shell"),
)
_OF_LANGUAGES: Final = (
    KernelSpec("ir", "r", "R", ".r", "text/x-r-source", "r"),
    KernelSpec("java", "java", "Java", ".java", "text/x-java", "java"),
)


def kernel_specs(template: str) -> MappingProxyType[str, KernelSpec]:
    """Return the kernels of a template's sandboxes by name."""
    found = (*_OWN, *(_OF_LANGUAGES if template == _LANGUAGES_TEMPLATE else ()))
    return MappingProxyType({spec.name: spec for spec in found})
