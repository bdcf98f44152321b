"""What only E2B's newest clients have: metadata of files, changes of a network, metrics of a time, other pauses."""

import datetime
import time

from e2b import Sandbox

FETCH = "curl --silent --output /dev/null --write-out '%{http_code}' --max-time 20 http://example.org/ || true"

sandbox = Sandbox.create(timeout=120)

# Metadata of files: of each, and of what is written again none.
noted = sandbox.files.write("report.txt", "x", metadata={"source": "trial", "step": "2"})
assert noted.metadata == {"source": "trial", "step": "2"}, noted
assert sandbox.files.get_info("report.txt").metadata == {"source": "trial", "step": "2"}
sandbox.files.write("plain.txt", "x")
listed = {file.name: file.metadata for file in sandbox.files.list("/home/user") if file.name[0] != "."}
assert listed == {"plain.txt": None, "report.txt": {"source": "trial", "step": "2"}}, listed
sandbox.files.rename("report.txt", "moved.txt")
assert sandbox.files.get_info("moved.txt").metadata == {"source": "trial", "step": "2"}
sandbox.files.write("moved.txt", "y")
assert sandbox.files.get_info("moved.txt").metadata is None

# What it may reach, changed while it runs: 403 is the mesh's refusal, anything else is what the host says.
assert sandbox.commands.run(FETCH).stdout != "403"
sandbox.update_network({"allow_out": ["pypi.org"], "deny_out": ["0.0.0.0/0"]})
assert sandbox.commands.run(FETCH).stdout == "403"
sandbox.update_network({"allow_out": ["example.org"], "deny_out": ["0.0.0.0/0"]})
assert sandbox.commands.run(FETCH).stdout != "403"
sandbox.update_network({"allow_internet_access": False})
assert sandbox.commands.run(FETCH).stdout == "403"
sandbox.update_network({})
assert sandbox.commands.run(FETCH).stdout != "403"

# What it uses: from the first question on there are samples, of which a time can be asked for.
began = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=2)
first = sandbox.get_metrics()
while len(samples := sandbox.get_metrics(start=began)) < len(first) + 2:
    time.sleep(0.1)
assert samples[0].timestamp <= samples[-1].timestamp
assert samples[-1].mem_used > 0
assert sandbox.get_metrics(end=began - datetime.timedelta(hours=1)) == []

# A pause without memory: what runs is ended, and the files stay.
sandbox.commands.run("sleep 1000", background=True, timeout=0)
sandbox.commands.run("setsid sleep 1001 >/dev/null 2>&1 &")
sandbox.pause(mode="filesystem")
assert not sandbox.is_running()
again = Sandbox.connect(sandbox.sandbox_id, timeout=120)
assert again.files.read("moved.txt") == "y"
assert again.commands.run("pgrep -x sleep || echo nothing runs").stdout == "nothing runs\n"
assert again.kill()
print("every call answered")
