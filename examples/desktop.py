"""A desktop: a program is started, typed into, and looked at. Needs the packages of `sandmesh build gui`."""

from sandmesh import GuiSandbox

with GuiSandbox() as box:
    box.desktop.launch("xterm", "-T", "notes", "-e", "cat > notes.txt")
    while not box.desktop.windows():
        pass
    box.desktop.focus(box.desktop.windows()[0])
    box.computer_use("type", text="Grüße, 你好\n")
    box.computer_use("key", text="ctrl+d")
    print(box.desktop.screenshot(scale=0.5)[:4])
    print(box.run_shell_command("cat notes.txt").text)
