from langchain_core.tools import StructuredTool

from sandmesh import BaseSandbox
from sandmesh.tools import run_ipython_cell, run_shell_command

with BaseSandbox() as box:
    functions = [tool.bind(box).make_function() for tool in (run_ipython_cell, run_shell_command)]
    tools = [StructuredTool.from_function(function) for function in functions]
    print(tools[1].args["timeout"])
    print(tools[1].invoke({"command": "echo hello; exit 3"}))
