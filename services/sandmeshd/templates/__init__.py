"""Templates of sandboxes, as data.

`definitions/<name>.toml` defines a template, `environments/<name>.toml` its Python; two templates that name the same
environment share one build of it. Users define their own: in an extension (a Python file or module that registers
classes), in a YAML or TOML file, or by RegisterTemplate while the mesh runs.
"""

from sandmeshd.templates.catalog import TemplateCatalog, open_catalog
from sandmeshd.templates.loader import build_command, load_templates
from sandmeshd.templates.model import (
    WITH_PROGRAMS,
    OwnTool,
    PythonEnvironment,
    Template,
    TemplateLimits,
    TrainingEnvironment,
)

__all__ = [
    "WITH_PROGRAMS",
    "OwnTool",
    "PythonEnvironment",
    "Template",
    "TemplateCatalog",
    "TemplateLimits",
    "TrainingEnvironment",
    "build_command",
    "load_templates",
    "open_catalog",
]
