// An agent of Mastra whose workspace is a sandbox of a mesh, by Mastra's own provider for E2B.
import { Agent } from "@mastra/core/agent";
import { Workspace } from "@mastra/core/workspace";
import { E2BSandbox } from "@mastra/e2b";

// The provider's default template installs packages as root, which a mesh's build refuses: name one.
const sandbox = new E2BSandbox({ template: "base" });
const agent = new Agent({
  id: "counter",
  name: "counter",
  instructions: "Compute with the workspace's commands.",
  model: { id: "openai/gpt-5-mini", url: process.env.OPENAI_BASE_URL, apiKey: process.env.OPENAI_API_KEY },
  workspace: new Workspace({ sandbox }),
});
try {
  const result = await agent.generate("How many primes are below 10,000?");
  console.log(result.text);
} finally {
  await sandbox._destroy();
}
