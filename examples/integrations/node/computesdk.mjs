// ComputeSDK with its own provider for E2B: commands and files in a sandbox of a mesh.
import { e2b } from "@computesdk/e2b";
import { compute } from "computesdk";

compute.setConfig({ provider: e2b({ apiKey: process.env.E2B_API_KEY }) });
const sandbox = await compute.sandbox.create();
try {
  await sandbox.filesystem.writeFile(
    "primes.py",
    "n = range(2, 10_000); print(sum(all(p % d for d in range(2, int(p**0.5) + 1)) for p in n))",
  );
  const { stdout, exitCode } = await sandbox.runCommand("python3 primes.py");
  if (exitCode !== 0) throw new Error(`exit code ${exitCode}`);
  console.log(`There are ${stdout.trim()}.`);
} finally {
  await sandbox.destroy();
}
