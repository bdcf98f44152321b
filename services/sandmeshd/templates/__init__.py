"""Templates: the kinds of sandboxes there are, as data.

`definitions/<name>.toml` says what a template is, `environments/<name>.toml` which Python it has; two templates that
name the same environment share one build of it. A user's own come as definitions: from an extension (a Python file or
module that registers classes), from a YAML or TOML file, or over RegisterTemplate while the mesh runs.
"""

from sandmeshd.templates.book import TemplateBook, open_book
from sandmeshd.templates.loader import load_templates
from sandmeshd.templates.model import OwnTool, PythonEnvironment, Template, TemplateLimits

__all__ = ["OwnTool", "PythonEnvironment", "Template", "TemplateBook", "TemplateLimits", "load_templates", "open_book"]
