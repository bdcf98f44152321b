"""Variables of one execution as code of its language: what sets them before it, and what undoes that after it."""

from __future__ import annotations

import json
import re
import shlex
from typing import Final

from sandmeshd.facades.e2b.errors import ApiError

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PYTHON_SET: Final = """import os as __e2b_os
__e2b_saved = {{name: __e2b_os.environ.get(name) for name in {values!r}}}
__e2b_os.environ.update({values!r})
"""
_PYTHON_UNSET: Final = """for __e2b_name, __e2b_value in __e2b_saved.items():
    if __e2b_value is None:
        __e2b_os.environ.pop(__e2b_name, None)
    else:
        __e2b_os.environ[__e2b_name] = __e2b_value
"""
_NODE_SET: Final = """(() => {{
  const values = {values};
  globalThis.__e2bSaved = Object.keys(values).map((name) => [name, process.env[name]]);
  Object.assign(process.env, values);
}})()
"""
_NODE_UNSET: Final = """(() => {
  for (const [name, value] of globalThis.__e2bSaved)
    if (value === undefined) delete process.env[name];
    else process.env[name] = value;
})()
"""


def setting(language: str, values: dict[str, str]) -> tuple[str, str]:
    """Return the code that sets variables, and the code that restores what they were.

    Raises:
        ApiError: The kernels of the language take none.
    """
    if language == "python":
        return _PYTHON_SET.format(values=values), _PYTHON_UNSET
    if language in {"javascript", "typescript"}:
        return _NODE_SET.format(values=json.dumps(values)), _NODE_UNSET
    if language == "bash" and all(map(_NAME.fullmatch, values)):
        saved = [f'__e2b_{name}="${{{name}-}}"; __e2b_had_{name}="${{{name}+x}}"' for name in values]
        exported = [f"export {name}={shlex.quote(value)}" for name, value in values.items()]
        back = [
            f'if [ -n "$__e2b_had_{name}" ]; then export {name}="$__e2b_{name}"; else unset {name}; fi'
            for name in values
        ]
        return "\n".join([*saved, *exported]), "\n".join(back)
    raise ApiError(400, f"env_vars are not available for {language}: set them in the code")
