// A client of a mesh in Node: it makes a sandbox, follows a call, and reads why a request was refused.
//   SANDMESH_ADDRESS=host:port SANDMESH_TOKEN=smesh_... node client.mjs path/to/protos [ca.pem]
import { readFileSync } from "node:fs";
import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";
import protobuf from "protobufjs";

const [protos, ca] = process.argv.slice(2);
const files = ["session/v1/session", "sandbox/v1/sandbox", "call/v1/call"].map((name) => `sandmesh/api/${name}.proto`);
const options = { includeDirs: [protos], keepCase: true, longs: String, enums: String, oneofs: true };
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
    arguments: Buffer.from(JSON.stringify({ command: "for i in 1 2 3; do echo step $i; done; exit 7" })),
  };
  for await (const { batch } of calls.RunCall({ start }, metadata)) {
    for (const event of batch.events) {
      if (event.output) process.stdout.write(event.output.data);
      if (event.result) console.log(`ended ${event.result.reason} with ${event.result.exit_code}`);
    }
  }

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
