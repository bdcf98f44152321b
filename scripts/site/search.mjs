// Search a built site by the engine and index that its pages load: node scripts/site/search.mjs SITE QUERY... prints
// for each query the addresses of its first results, a JSON array of them a line.
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { runInNewContext } from "node:vm";

const [INDEX, READY, QUERY, RESULT] = [0, 1, 2, 3]; // what the page and its worker send each other
const [site, ...queries] = process.argv.slice(2);
const workers = join(site, "assets", "javascripts", "workers");
const [program] = readdirSync(workers).filter((name) => /^search\..*\.js$/.test(name));
const index = JSON.parse(readFileSync(join(site, "search.json"), "utf8"));
const worker = {};
runInNewContext(readFileSync(join(workers, program), "utf8"), { self: worker, Intl });

async function send(message, expected) {
  const answer = await new Promise((resolve) => {
    worker.postMessage = resolve;
    worker.onmessage({ data: structuredClone(message) }); // as a browser copies it
  });
  if (answer.type !== expected) throw new Error(`the site's search answered ${JSON.stringify(answer)}`);
  return answer.data;
}

await send({ type: INDEX, data: index }, READY);
const filter = { input: { type: "operator", data: { operator: "and", operands: [] } }, aggregation: { input: [] } };
for (const input of queries) {
  const { items } = await send({ type: QUERY, data: { input, filter } }, RESULT);
  console.log(JSON.stringify(items.map((item) => index.items[item.id].location)));
}
