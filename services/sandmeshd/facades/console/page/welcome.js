// The first view of a mesh without sandboxes: how to make one, in three languages.

import { html, useState } from "./preact.js";

function programs(address) {
  return {
    "Command line": `export SANDMESH_ADDRESS=${address}\nsandmesh run -it base bash`,
    Python: `from sandmesh import BaseSandbox\n\nwith BaseSandbox(base_url="${address}") as box:\n    print(box.run_ipython_cell("6 * 7").text)\n    input("Enter ends the sandbox")`,
    "MCP client": `{\n  "mcpServers": {\n    "sandmesh": {\n      "command": "sandmesh",\n      "args": ["mcp", "--base-url", "${address}"]\n    }\n  }\n}`,
  };
}

export function Welcome({ session, pooled, show }) {
  const found = programs(session.address);
  const [name, setName] = useState("Python");
  const [copied, setCopied] = useState("");
  const copy = async () => {
    try { await navigator.clipboard.writeText(found[name]); setCopied("Copied."); }
    catch { setCopied("This browser does not allow it: select the text."); }
  };
  return html`<section class="welcome"><h1>No sandbox is in use</h1>
    <p>${session.read_only ? "Your token only shows them. " : ""}Make one, and it appears here:</p>
    <div class="tabs" role="tablist" aria-label="Languages">${Object.keys(found).map((one) => html`<button role="tab" key=${one}
      aria-selected=${one === name} onClick=${() => { setName(one); setCopied(""); }}>${one}</button>`)}</div>
    <pre tabindex="0">${found[name]}</pre>
    <p class="buttons"><button onClick=${copy}>Copy</button><span class="note" role="status">${copied}</span></p>
    ${pooled ? html`<p>${pooled} ${pooled === 1 ? "waits" : "wait"} in pools, ready to be handed out.
      <button class="link" onClick=${show}>Show them</button></p>` : null}</section>`;
}
