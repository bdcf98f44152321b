// A sandbox of a mesh in TypeScript, by E2B's client: code, output as it comes, files, and a pause.
import { Sandbox } from "@e2b/code-interpreter";

const sandbox = await Sandbox.create({ timeoutMs: 120_000 });
try {
  const execution = await sandbox.runCode("primes = [n for n in range(2, 10_000) if all(n % d for d in range(2, n))]\nlen(primes)");
  if (execution.error) throw new Error(execution.error.traceback);
  const lines: string[] = [];
  await sandbox.commands.run("for n in 1 2 3; do echo line $n; done", { onStdout: (text: string) => void lines.push(text) });
  await sandbox.files.write("note.txt", "kept");
  await sandbox.pause();
  const again = await Sandbox.connect(sandbox.sandboxId);
  const [note, kept] = [await again.files.read("note.txt"), await again.runCode("primes[-1]")];
  console.log(lines.join("").trim().split("\n").length, note, kept.text);
  console.log(`There are ${execution.text}.`);
} finally {
  await sandbox.kill();
}
