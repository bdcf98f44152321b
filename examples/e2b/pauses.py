"""Pauses by E2B's own client: by hand, when a sandbox's time is over, and ended by the next request."""

import time
import uuid

from e2b import NotFoundException, Sandbox, SandboxQuery, SandboxState


def boot_id(box: Sandbox) -> str:
    """Return by what programs tell starts of a machine apart."""
    return str(uuid.UUID(box.commands.run("cat /proc/sys/kernel/random/boot_id").stdout.strip()))


# By hand: what runs keeps its memory, and goes on when a client connects.
sandbox = Sandbox.create(timeout=120, metadata={"task": "pauses"})
counting = "x=0; while read line; do x=$((x + 1)); echo $x; done"
counter = sandbox.commands.run(counting, background=True, stdin=True)
sandbox.commands.send_stdin(counter.pid, "one\n")
booted = boot_id(sandbox)
assert booted == boot_id(sandbox)
sandbox.pause()
assert not sandbox.is_running()
assert sandbox.get_info().state == SandboxState.PAUSED
query = SandboxQuery(metadata={"task": "pauses"}, state=[SandboxState.PAUSED])
assert [item.sandbox_id for item in Sandbox.list(query=query).next_items()] == [sandbox.sandbox_id]
again = Sandbox.connect(sandbox.sandbox_id, timeout=120)
assert again.is_running()
again.commands.send_stdin(counter.pid, "two\n")
for out, _, _ in counter:
    if out and "2" in out:
        break
assert boot_id(again) == booted
assert sandbox.kill()

# A paused sandbox that is killed is gone.
sandbox = Sandbox.create(timeout=120)
assert boot_id(sandbox) != booted
sandbox.pause()
assert sandbox.kill()
try:
    Sandbox.connect(sandbox.sandbox_id)
except NotFoundException:
    pass
else:
    raise AssertionError("a killed sandbox was found")

# When its time is over, and back by the next request.
sandbox = Sandbox.create(timeout=600, lifecycle={"on_timeout": "pause", "auto_resume": True})
sandbox.files.write("note", "kept")
sandbox.set_timeout(1)
while sandbox.get_info().state != SandboxState.PAUSED:
    time.sleep(0.1)
assert sandbox.commands.run("cat note").stdout == "kept"
assert sandbox.get_info().state == SandboxState.RUNNING
assert sandbox.kill()
print("every call answered")
