from sandmesh import BaseSandbox

with BaseSandbox() as box:
    print(box.run_ipython_cell("import math; math.factorial(20)").text)
    result = box.run_shell_command("echo hello | tr a-z A-Z; exit 3")
    print(result.stdout, result.exit_code, result.is_error)
