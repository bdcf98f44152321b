// A tool of the Vercel AI SDK that runs Python in a sandbox of a mesh, by E2B's client.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Sandbox } from "@e2b/code-interpreter";
import { generateText, stepCountIs, tool } from "ai";
import { z } from "zod";

const provider = createOpenAICompatible({
  name: "openai",
  baseURL: process.env.OPENAI_BASE_URL,
  apiKey: process.env.OPENAI_API_KEY,
});
const sandbox = await Sandbox.create();
const runPython = tool({
  description: "Run Python code and return what it prints.",
  inputSchema: z.object({ code: z.string() }),
  execute: async ({ code }) => {
    const run = await sandbox.runCode(code);
    return run.error ? run.error.traceback : run.logs.stdout.join("");
  },
});
try {
  const { text } = await generateText({
    model: provider("gpt-5-mini"),
    tools: { runPython },
    stopWhen: stepCountIs(5),
    prompt: "How many primes are below 10,000?",
  });
  console.log(text);
} finally {
  await sandbox.kill();
}
