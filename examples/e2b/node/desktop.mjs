// A desktop by E2B's own client: `sandmesh up --e2b --domain mesh.localhost`, and the template `desktop`.
import assert from "node:assert/strict";
import { setTimeout } from "node:timers/promises";
import { Sandbox } from "@e2b/desktop";

async function until(check) {
  for (let turn = 0; turn < 150; turn += 1) {
    const found = await check().catch(() => null);
    if (found) return found;
    await setTimeout(200);
  }
  throw new Error(`never: ${check}`);
}

const desktop = await Sandbox.create({ resolution: [1024, 768], timeoutMs: 300_000 });
assert.deepEqual(await desktop.getScreenSize(), { width: 1024, height: 768 });
assert.deepEqual([...(await desktop.screenshot()).slice(1, 4)], [...Buffer.from("PNG")]);
await desktop.moveMouse(300, 200);
assert.deepEqual(await desktop.getCursorPosition(), { x: 300, y: 200 });
// Each at another place: the client's xdotool waits 15 s for a pointer that is there already.
await desktop.leftClick(500, 400);
await desktop.doubleClick(510, 400);
await desktop.rightClick(520, 400);
await desktop.press("esc");
await desktop.scroll("down", 2);
await desktop.drag([200, 300], [400, 500]);
await desktop.launch("xfce4-terminal");
const window = (await until(() => desktop.getApplicationWindows("xfce4-terminal"))).at(-1);
await desktop.commands.run(`xdotool windowactivate --sync ${window}`);
await desktop.write("echo 'typed by a client' > typed");
await desktop.press("enter");
await until(() => desktop.files.exists("typed"));
await desktop.stream.start();
const page = await fetch(desktop.stream.getUrl({ viewOnly: true }));
assert.match(await page.text(), /noVNC/);
await desktop.stream.stop();
await desktop.kill();
console.log("every call answered");
