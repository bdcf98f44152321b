// A client of a mesh in Node: it makes a sandbox, follows a call, carries a file, and reads why a request was refused.
//   SANDMESH_ADDRESS=host:port SANDMESH_TOKEN=smesh_... node client.mjs path/to/protos [ca.pem]
import { randomBytes, randomUUID } from "node:crypto";
import { once } from "node:events";
import { createReadStream, createWriteStream, readFileSync, writeFileSync } from "node:fs";
import { pipeline } from "node:stream/promises";
import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";
import protobuf from "protobufjs";

const [protos, ca] = process.argv.slice(2);
const files = ["session/v1/session", "sandbox/v1/sandbox", "call/v1/call"].map((name) => `sandmesh/api/${name}.proto`);
const options = { includeDirs: [protos], keepCase: true, longs: String, enums: String, arrays: true, oneofs: true };
const { api } = grpc.loadPackageDefinition(loader.loadSync(files, options)).sandmesh;

const address = process.env.SANDMESH_ADDRESS;
const credentials = ca ? grpc.credentials.createSsl(readFileSync(ca)) : grpc.credentials.createInsecure();
const metadata = new grpc.Metadata();
metadata.set("authorization", `Bearer ${process.env.SANDMESH_TOKEN}`);

const sessions = new api.session.v1.SessionService(address, credentials);
const sandboxes = new api.sandbox.v1.SandboxService(address, credentials);
const calls = new api.call.v1.CallService(address, credentials);

// An error's reason and facts: https://google.aip.dev/193, in the trailing metadata.
const details = protobuf.parse(`
  syntax = "proto3";
  message Any { string type_url = 1; bytes value = 2; }
  message Status { int32 code = 1; string message = 2; repeated Any details = 3; }
  message ErrorInfo { string reason = 1; string domain = 2; map<string, string> metadata = 3; }
`).root;

function reasonOf(error) {
  const [bytes] = error.metadata.get("grpc-status-details-bin");
  if (bytes === undefined) return { reason: grpc.status[error.code], metadata: {} };
  const status = details.lookupType("Status").decode(bytes);
  const info = status.details.find((one) => one.typeUrl.endsWith("/google.rpc.ErrorInfo"));
  return details.lookupType("ErrorInfo").decode(info.value);
}

const ask = (client, method, request) =>
  new Promise((resolve, reject) =>
    client[method](request, metadata, (error, answer) => (error ? reject(error) : resolve(answer))),
  );

// Sends chunks of at most 1 MiB as a file: it is there once it is whole.
async function upload(sandbox_id, path, chunks) {
  const [call_id, stream] = [randomUUID(), calls.OpenCall(metadata)];
  const ended = (async () => {
    for await (const { batch } of stream) for (const { result } of batch.events) if (result) return result;
  })();
  ended.catch(() => {}); // it is awaited below
  const send = async (frame) => {
    if (!stream.write({ frame: { call_id, ...frame } })) await Promise.race([once(stream, "drain"), ended]);
  };
  const arguments_json = JSON.stringify({ path });
  await send({ start: { sandbox_id, call_id, tool: "fs.write", arguments_json, takes_input: true } });
  let sequence = 0;
  for await (const data of chunks) await send({ input: { sequence: ++sequence, data } });
  await send({ input: { sequence: ++sequence, end: true } });
  const result = await ended;
  if (result.is_error) throw new Error(result.message);
}

// Yields a file's chunks.
async function* download(sandbox_id, path) {
  const start = { sandbox_id, tool: "fs.read", arguments_json: JSON.stringify({ path }) };
  for await (const { batch } of calls.RunCall({ start }, metadata)) {
    for (const { output, result } of batch.events) {
      if (output?.stream === "STREAM_STDOUT") yield output.data;
      if (result?.is_error) throw new Error(result.message);
    }
  }
}

try {
  const { session } = await ask(sessions, "ConnectSession", {
    session_id: "from-node",
    slots: [{ spec: { template: "base" } }],
  });
  const sandbox_id = session.sandboxes.base.sandbox_id;
  console.log(`sandbox ${sandbox_id}`);

  const start = {
    sandbox_id,
    tool: "run_shell_command",
    arguments_json: JSON.stringify({ command: "for i in 1 2 3; do echo step $i; done; exit 7" }),
  };
  for await (const { batch } of calls.RunCall({ start }, metadata)) {
    for (const event of batch.events) {
      if (event.output) process.stdout.write(event.output.data);
      if (event.result) console.log(`ended ${event.result.reason} with ${event.result.exit_code}`);
    }
  }

  writeFileSync("sent.bin", randomBytes(5_000_000));
  await upload(sandbox_id, "data/file.bin", createReadStream("sent.bin"));
  await pipeline(download(sandbox_id, "data/file.bin"), createWriteStream("received.bin"));
  console.log(`the file is the same: ${readFileSync("received.bin").equals(readFileSync("sent.bin"))}`);
  await upload(sandbox_id, "/etc/passwd", []).catch((error) => console.log(error.message));

  await ask(sandboxes, "GetSandbox", { sandbox_id: "sb_nobody" }).catch((error) => {
    const { reason, metadata } = reasonOf(error);
    console.log(`refused ${reason} of ${metadata.sandbox_id}`);
  });
  const { user_id, session_id } = session;
  await ask(sessions, "ReleaseSession", { user_id, session_id });
} catch (error) {
  console.log(`refused ${reasonOf(error).reason}: ${error.details}`);
  process.exitCode = 1;
}
