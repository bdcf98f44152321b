"""What E2B's pages show of templates, named snapshots and forks, by its own client."""

import tempfile
from pathlib import Path

from e2b import BuildException, Sandbox, Template, wait_for_file

HOME = "/home/user"
context = Path(tempfile.mkdtemp())
(context / "app").mkdir()
(context / "app" / "main.py").write_text("print('from the template')\n")
(context / "settings.txt").write_text("colour=blue\n")

# A template from the base, with every kind of step, and a start of its own.
template = (
    Template(file_context_path=context)
    .from_base_image()
    .copy("app", "service")
    .copy("settings.txt", f"{HOME}/etc/", mode=0o600)
    .set_envs({"COLOUR": "blue", "PLACE": "here"})
    .set_workdir("service")
    .run_cmd("echo built in $(basename $PWD) for $COLOUR > built.txt")
    .make_dir(f"{HOME}/logs")
    .set_start_cmd(f"touch {HOME}/logs/started && sleep 1000", wait_for_file(f"{HOME}/logs/started"))
)
lines = []
built = Template.build(
    template, "trial-app", tags=["v1", "stable"], on_build_logs=lambda entry: lines.append(str(entry))
)
assert built.tags == ["stable", "v1"], built
assert any("RUN echo built" in line for line in lines), lines
assert Template.exists("trial-app")
assert not Template.exists("trial-nothing")
assert {tag.tag for tag in Template.get_tags("trial-app")} == {"stable", "v1"}
Template.assign_tags("trial-app:v1", ["default"])
Template.remove_tags("trial-app", "stable")
assert {tag.tag for tag in Template.get_tags("trial-app")} == {"default", "v1"}

sandbox = Sandbox.create("trial-app", timeout=120, envs={"PLACE": "there"})
assert sandbox.commands.run("cat built.txt").stdout == "built in service for blue\n"
assert sandbox.commands.run("python3 main.py; echo $PLACE").stdout == "from the template\nthere\n"
assert sandbox.commands.run(f"stat -c %a {HOME}/etc/settings.txt").stdout == "600\n"
assert sandbox.files.exists(f"{HOME}/logs/started")

# A template from a template; a step that fails says which.
Template.build(Template().from_template("trial-app").run_cmd("echo more > more.txt"), "trial-more")
more = Sandbox.create("trial-more", timeout=120)
assert more.commands.run("cat built.txt more.txt; echo $COLOUR").stdout == "built in service for blue\nmore\nblue\n"
assert more.kill()
try:
    Template.build(Template().from_base_image().run_cmd("echo trouble; exit 3"), "trial-broken")
except BuildException as error:
    assert "code 3: trouble" in str(error), error
else:
    raise AssertionError("a step that fails fails the build")

# Copies of a running sandbox, and snapshots by name.
sandbox.files.write("note.txt", "of the first")
first, second = sandbox.fork(timeout=120, count=2)
assert [one.files.read("note.txt") for one in (first, second)] == ["of the first"] * 2
assert first.commands.run("echo $PLACE").stdout == "there\n"
first.files.write("note.txt", "of the copy")
assert sandbox.files.read("note.txt") == "of the first"
snapshot = sandbox.create_snapshot(name="trial-state")
assert snapshot.names == ["trial-state:default"], snapshot
again = Sandbox.create("trial-state", timeout=120)
assert again.files.read("note.txt") == "of the first"
for one in (first, second, again, sandbox):
    assert one.kill()
assert Sandbox.delete_snapshot(snapshot.snapshot_id)
print("every call answered")
