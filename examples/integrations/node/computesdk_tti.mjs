// Times to the first command as ComputeSDK's published benchmark takes them: one by one, staggered, and all together.
// `node computesdk_tti.mjs [COUNT [MILLISECONDS]]`: how many sandboxes each (100), and how far apart staggered ones start (200).
import { setTimeout as sleep } from "node:timers/promises";
import { e2b } from "@computesdk/e2b";
import { compute } from "computesdk";

const LIMIT = 120_000;
const [count, gap] = [Number(process.argv[2] ?? 100), Number(process.argv[3] ?? 200)];
if (!Number.isInteger(count) || count < 1 || !(gap >= 0)) {
  console.error("usage: node computesdk_tti.mjs [COUNT [MILLISECONDS]]: a count of 1 or more, and 0 ms or more");
  process.exit(2);
}
compute.setConfig({ provider: e2b({ apiKey: process.env.E2B_API_KEY }) });

// Creates a sandbox and runs a command in it; its removal is not timed.
async function first(begin) {
  const start = performance.now();
  const work = (async () => {
    const sandbox = await compute.sandbox.create();
    try {
      const { exitCode } = await sandbox.runCommand("node -v");
      if (exitCode !== 0) throw new Error(`exit code ${exitCode}`);
      return { taken: performance.now() - start, ready: performance.now() - begin };
    } finally {
      await sandbox.destroy();
    }
  })();
  const late = new AbortController();
  const limit = sleep(LIMIT, undefined, { signal: late.signal }).then(() => {
    throw new Error(`more than ${LIMIT / 1000} s`);
  });
  try {
    return await Promise.race([work, limit]);
  } catch (error) {
    return { error: error.message };
  } finally {
    late.abort();
    limit.catch(() => {});
    await work.catch(() => {});
  }
}

async function oneByOne(begin) {
  const found = [];
  for (let number = 0; number < count; number += 1) found.push(await first(begin));
  return found;
}

const apart = (milliseconds) => (begin) =>
  Promise.all(Array.from({ length: count }, (_, number) => sleep(number * milliseconds).then(() => first(begin))));

const modes = { sequential: oneByOne, staggered: apart(gap), burst: apart(0) };
const share = (sorted, part) => sorted[Math.max(0, Math.ceil(sorted.length * part) - 1)];
const milliseconds = (value) => (value === undefined ? "-" : value.toFixed(0));

console.log("| mode | succeeded | median ms | P95 ms | P99 ms | first ready ms | last ready ms |");
console.log("| --- | --- | --- | --- | --- | --- | --- |");
let failures = 0;
for (const [name, run] of Object.entries(modes)) {
  const found = await run(performance.now());
  const good = found.filter((one) => one.error === undefined);
  const sorted = good.map((one) => one.taken).sort((left, right) => left - right);
  // The fastest and the slowest twentieth are left out of the three figures.
  const cut = Math.floor(sorted.length * 0.05);
  const kept = sorted.slice(cut, sorted.length - cut);
  const ready = good.map((one) => one.ready);
  const ends = good.length > 0 ? [Math.min(...ready), Math.max(...ready)] : [];
  const cells = [...[0.5, 0.95, 0.99].map((part) => share(kept, part)), ...ends].map(milliseconds);
  console.log(`| ${name} | ${good.length} of ${count} | ${cells.join(" | ")} |`);
  failures += count - good.length;
  for (const error of new Set(found.map((one) => one.error).filter(Boolean))) console.error(`${name}: ${error}`);
}
process.exitCode = failures > 0 ? 1 : 0;
