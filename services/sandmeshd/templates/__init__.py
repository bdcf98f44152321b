"""Templates: the kinds of sandboxes there are, as data.

`definitions/<name>.toml` says what a template is, `environments/<name>.toml` which Python it has; two templates that
name the same environment share one build of it.
"""

from sandmeshd.templates.loading import load_templates
from sandmeshd.templates.model import PythonEnvironment, Template

__all__ = ["PythonEnvironment", "Template", "load_templates"]
