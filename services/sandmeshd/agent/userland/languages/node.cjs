// A kernel of JavaScript or TypeScript on Node.js's own REPL: `node node.cjs LANGUAGE`, its channel is descriptor 3.
//
// The frames are those of `kernel_protocol.py`. Between cells the channel is read by a thread of Node's pool; while a cell
// runs only this thread reads it, and waits, so that output and blocks keep the order in which they were written.
"use strict";

const fs = require("node:fs");
const nodeModule = require("node:module");
const repl = require("node:repl");
const { PassThrough, Readable, Writable } = require("node:stream");
const util = require("node:util");

const CHANNEL = 3;
const RUN = 1, RUN_WITH_INPUT = 2, GO_ON = 3;
const BLOCK_WAITS = 0x11, SYNC = 0x12, END = 0x13;
const FAILED = 1, LEAVES = 2;
const MAX_PAYLOAD = (2 << 20) - (256 << 10), MAX_ERROR = 65536, MAX_TEXT = 262144, MAX_VALUE = 8192;
const IMAGES = ["image/png", "image/jpeg"];
const DISPLAY = Symbol.for("Jupyter.display");
const NOTHING = new Int32Array(new SharedArrayBuffer(4));

const language = process.argv[2];
let running = false;
let lastWritten = 0;
let received = Buffer.alloc(0);

// ---- The channel

function writeAll(fd, data) {
  while (data.length > 0) {
    try {
      data = data.subarray(fs.writeSync(fd, data));
    } catch (error) {
      // A program that shares the descriptor may have made it non-blocking.
      if (error.code !== "EAGAIN") throw error;
      Atomics.wait(NOTHING, 0, 0, 5);
    }
  }
}

function send(kind, payload = Buffer.alloc(0)) {
  const head = Buffer.alloc(5);
  head.writeUInt32BE(payload.length + 1);
  head[4] = kind;
  writeAll(CHANNEL, Buffer.concat([head, payload]));
}

function takeFrame() {
  if (received.length < 5) return undefined;
  const end = 4 + received.readUInt32BE(0);
  if (received.length < end) return undefined;
  const frame = { kind: received[4], payload: received.subarray(5, end) };
  received = received.subarray(end);
  return frame;
}

function sendAndWait(kind, payload) {
  send(kind, payload);
  const chunk = Buffer.alloc(4096);
  for (;;) {
    for (let frame = takeFrame(); frame !== undefined; frame = takeFrame()) if (frame.kind === GO_ON) return;
    const count = fs.readSync(CHANNEL, chunk);
    if (count === 0) process.exit(0);
    received = Buffer.concat([received, chunk.subarray(0, count)]);
  }
}

function nextFrame(handle) {
  const frame = takeFrame();
  if (frame !== undefined) return handle(frame);
  const chunk = Buffer.alloc(65536);
  fs.read(CHANNEL, chunk, 0, chunk.length, null, (error, count) => {
    if (error || count === 0) process.exit(0);
    received = Buffer.concat([received, chunk.subarray(0, count)]);
    nextFrame(handle);
  });
}

// ---- What code writes and shows

class Output extends Writable {
  constructor(fd) {
    super({ decodeStrings: true });
    this.fd = fd;
  }

  write(chunk, encoding, done) {
    // At once, not from a queue: what code writes next may be another stream, a program's output or a result.
    const data = typeof chunk === "string" ? Buffer.from(chunk, typeof encoding === "string" ? encoding : "utf8") : chunk;
    if (running && lastWritten !== this.fd) {
      if (lastWritten !== 0) sendAndWait(SYNC);
      lastWritten = this.fd;
    }
    writeAll(this.fd, data);
    const callback = typeof encoding === "function" ? encoding : done;
    if (typeof callback === "function") process.nextTick(callback);
    return true;
  }
}

function textBlocks(text, description, annotations) {
  const blocks = [{ type: "text", text: text.slice(0, MAX_TEXT), annotations, description }];
  for (let start = MAX_TEXT; start < text.length; start += MAX_TEXT)
    blocks.push({ type: "text", text: text.slice(start, start + MAX_TEXT), annotations: { continues: true }, description });
  return blocks;
}

function bundleBlocks(bundle) {
  const image = IMAGES.find((kind) => kind in bundle);
  if (image !== undefined) {
    const data = typeof bundle[image] === "string" ? bundle[image] : Buffer.from(bundle[image]).toString("base64");
    if (data.length <= MAX_PAYLOAD - 1024)
      return [{ type: "image", data: data.trim(), mimeType: image, annotations: null, description: "stdout" }];
    return textBlocks(`[An image of ${data.length} bytes was left out: it is too large to show.]\n`, "stderr", null);
  }
  const forms = Object.entries(bundle).filter(([kind]) => kind !== "text/plain");
  const kept = forms.filter(([, form]) => (JSON.stringify(form) ?? "").length <= MAX_TEXT);
  const best = forms.length > 0 ? forms[0][1] : "";
  const plain = bundle["text/plain"] ?? (typeof best === "string" ? best : JSON.stringify(best));
  return textBlocks(String(plain), "stdout", kept.length > 0 ? Object.fromEntries(kept) : null);
}

function place(blocks) {
  if (!running) return;
  lastWritten = 0;
  for (const block of blocks) sendAndWait(BLOCK_WAITS, Buffer.from(JSON.stringify(block)));
}

function isPlain(value) {
  if (typeof value !== "object" || value === null) return false;
  return Array.isArray(value) || [Object.prototype, null].includes(Object.getPrototypeOf(value));
}

/** Return an object's forms by MIME type: what its method `Symbol.for("Jupyter.display")` says, or its text. */
function formsOf(value) {
  if (typeof value?.[DISPLAY] === "function") return value[DISPLAY]();
  const bundle = { "text/plain": util.inspect(value) };
  if (!isPlain(value)) return bundle;
  try {
    const encoded = JSON.stringify(value);
    if (encoded.length <= MAX_TEXT) bundle["application/json"] = JSON.parse(encoded);
  } catch {
    // It has a cycle, or a number that JSON cannot have: its text is all.
  }
  return bundle;
}

/** Show an object, or with `{raw: true}` its forms by MIME type; a promise where the object takes its time. */
function display(value, options = {}) {
  const forms = options.raw === true ? value : formsOf(value);
  if (util.types.isPromise(forms)) return forms.then((made) => place(bundleBlocks(made)));
  place(bundleBlocks(forms));
}

// ---- Errors

function described(error, depth = 0) {
  if (!util.types.isNativeError(error) && !(error instanceof Error)) {
    const value = util.inspect(error);
    return { name: "Uncaught", value, traceback: [`Uncaught ${value}`] };
  }
  const lines = String(error.stack ?? error).split("\n");
  const ours = lines.findIndex((line) => /^ +at .*(node:|\(?REPL\d|languages\/node\.cjs)/.test(line) && !line.includes("<cell"));
  const traceback = ours < 0 ? lines : lines.slice(0, ours);
  if (error.cause !== undefined && depth < 5)
    traceback.push(...described(error.cause, depth + 1).traceback.map((line, at) => (at === 0 ? `Caused by ${line}` : line)));
  return { name: String(error.name ?? "Error"), value: String(error.message), traceback };
}

function encoded(raised) {
  const value = raised.value.slice(0, MAX_VALUE);
  const whole = Buffer.from(JSON.stringify({ ...raised, value }));
  return whole.length <= MAX_ERROR ? whole : Buffer.from(JSON.stringify({ ...raised, value, traceback: [] }));
}

function tell(error) {
  place(textBlocks(described(error).traceback.join("\n") + "\n", "stderr", null));
}

function finish(error) {
  let payload = Buffer.from([0]);
  if (error !== undefined) {
    const raised = described(error.raised);
    tell(error.raised);
    const line = `${raised.name}: ${raised.value}`.split("\n")[0].replaceAll("\0", "").slice(0, 2000);
    payload = Buffer.concat([Buffer.from([FAILED]), Buffer.from(line), Buffer.from([0]), encoded(raised)]);
  }
  running = false;
  lastWritten = 0;
  send(END, payload);
}

// ---- Code

let typescript;

/** Return TypeScript without its types: by Node.js itself, or by the package `typescript` of the sandbox. */
function withoutTypes(code) {
  if (typeof nodeModule.stripTypeScriptTypes === "function") {
    const warn = process.emitWarning;
    process.emitWarning = () => {};
    try {
      return nodeModule.stripTypeScriptTypes(code, { mode: "strip" });
    } catch (error) {
      if (error.code !== "ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX") throw error;
      return nodeModule.stripTypeScriptTypes(code, { mode: "transform" });
    } finally {
      process.emitWarning = warn;
    }
  }
  const options = { target: "ES2022", module: "ESNext", verbatimModuleSyntax: true };
  const made = typescript.transpileModule(code, { compilerOptions: options, reportDiagnostics: true });
  const wrong = made.diagnostics.find((each) => each.category === typescript.DiagnosticCategory.Error);
  if (wrong !== undefined) throw new SyntaxError(typescript.flattenDiagnosticMessageText(wrong.messageText, "\n"));
  return made.outputText;
}

function findTypescript() {
  try {
    return nodeModule.createRequire(`${process.cwd()}/cell.js`)("typescript");
  } catch {
    throw new Error(
      `Node.js ${process.versions.node} runs no TypeScript by itself: it takes Node.js 22.13 or later, or the package ` +
        "typescript, as by `npm install typescript` in the workspace",
    );
  }
}

const FROM = String.raw`from\s*(["'][^"'\n]+["'])`;
const NAME = String.raw`[\w$]+`;
const names = (list) => list.replaceAll(/\bas\b/g, ":").replaceAll(/\s+/g, " ");
/** Static imports as what a cell can do: variables, so that a cell with them may run again. */
const IMPORTS = [
  [String.raw`import\s*(["'][^"'\n]+["'])`, (module) => `await import(${module})`],
  [String.raw`import\s*\*\s*as\s+(${NAME})\s*${FROM}`, (name, module) => `var ${name} = await import(${module})`],
  [String.raw`import\s*(\{[^}]*\})\s*${FROM}`, (list, module) => `var ${names(list)} = await import(${module})`],
  [String.raw`import\s+(${NAME})\s*${FROM}`, (name, module) => `var { default: ${name} } = await import(${module})`],
  [
    String.raw`import\s+(${NAME})\s*,\s*\{([^}]*)\}\s*${FROM}`,
    (name, list, module) => `var { default: ${name}, ${names(list)} } = await import(${module})`,
  ],
].map(([pattern, make]) => [new RegExp(String.raw`^[ \t]*${pattern}[ \t]*(?=;|$)`, "gm"), make]);

function withDynamicImports(code) {
  for (const [pattern, make] of IMPORTS) code = code.replaceAll(pattern, (_, ...found) => `${make(...found)};`);
  return code;
}

const server = startRepl();

function startRepl() {
  const options = { input: new PassThrough(), output: new PassThrough().resume(), terminal: false, prompt: "" };
  const made = repl.start({ ...options, useGlobal: true, breakEvalOnSigint: true, handleError: raise });
  if (made._domain !== undefined) {
    // Until Node.js 24 errors go to a domain, later ones call `handleError`.
    made._domain.removeAllListeners("error");
    made._domain.on("error", raise);
  }
  return made;
}

let settle;

/** Take an error that code raised: it ends the cell that runs, or else it is reported. */
function raise(error) {
  if (settle !== undefined) settle({ raised: error });
  else report(error);
  return "ignore";
}

/** Report an error of what a cell left behind. */
function report(error) {
  process.stderr.write(described(error).traceback.join("\n") + "\n");
}

/** Interrupt what a cell waits for; between cells there is nothing to interrupt. */
function interrupt() {
  if (running) server.emit("SIGINT");
}

function evaluate(code, name) {
  return new Promise((resolve) => {
    settle = resolve;
    // What runs before the first await is interrupted by Node.js itself, which wants to be the only one to listen.
    process.removeListener("SIGINT", interrupt);
    try {
      server.eval(`${code}\n`, server.context, name, (error, value) => {
        if (error === null || error === undefined) resolve({ value });
        else resolve({ raised: error instanceof repl.Recoverable ? error.err : error });
      });
    } finally {
      process.on("SIGINT", interrupt);
    }
  }).finally(() => {
    settle = undefined;
  });
}

const isImport = (error) => error instanceof SyntaxError && /import statement|import declarations/.test(error.message);

async function runCell(code, number) {
  let made = { raised: undefined };
  try {
    const plain = language === "typescript" ? withoutTypes(code) : code;
    made = await evaluate(plain, `<cell ${number}>`);
    if ("raised" in made && isImport(made.raised)) made = await evaluate(withDynamicImports(plain), `<cell ${number}>`);
    if (!("raised" in made) && made.value !== undefined) await display(made.value);
  } catch (error) {
    made = { raised: error };
  }
  finish("raised" in made ? made : undefined);
}

let cells = 0;

function serve({ kind, payload }) {
  if (kind !== RUN && kind !== RUN_WITH_INPUT) return nextFrame(serve);
  running = true;
  cells += 1;
  runCell(payload.toString("utf8"), cells).then(() => nextFrame(serve));
}

// ---- The process

const nothing = new Readable({ read() { this.push(null); } });
for (const [name, stream] of [["stdin", nothing], ["stdout", new Output(1)], ["stderr", new Output(2)]])
  Object.defineProperty(process, name, { value: stream, configurable: true, enumerable: true });
Object.defineProperty(globalThis, "display", { value: display, configurable: true, writable: true });
process.on("SIGINT", interrupt);
process.on("unhandledRejection", report);
process.on("uncaughtException", report);
process.on("exit", () => {
  if (!running) return;
  running = false;
  send(END, Buffer.from([LEAVES]));
});
process.argv.length = 1;
// A cell may wait for what keeps no event loop alive.
setInterval(() => {}, 2 ** 30);
try {
  if (language === "typescript" && nodeModule.stripTypeScriptTypes === undefined) typescript = findTypescript();
} catch (error) {
  send(END, Buffer.concat([Buffer.from([FAILED]), Buffer.from(error.message)]));
  process.exit(1);
}
sendAndWait(SYNC);
nextFrame(serve);
