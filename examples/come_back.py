from sandmesh import SandboxService

BEGIN = """
from pathlib import Path
notes = Path("visits")
visits = int(notes.read_text()) if notes.exists() else 0
"""

with SandboxService() as service:
    [box] = service.connect("notebook", user_id="ada", sandbox_types=["base"])
    is_new = box.session is not None and box.session.is_new
    if is_new:
        # Files of earlier days are there again; variables, processes and installed packages are not.
        box.run_ipython_cell(BEGIN)
    box.run_ipython_cell("visits += 1; notes.write_text(str(visits))")
    print("new sandbox," if is_new else "same sandbox,", "visit", box.run_ipython_cell("visits").text)
