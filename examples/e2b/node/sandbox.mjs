// What E2B's start pages show of sandboxes, by its own client: only environment variables say that it is a mesh.
import assert from 'node:assert/strict'
import { CommandExitError, Sandbox } from 'e2b'

const sandbox = await Sandbox.create({ timeoutMs: 120_000, metadata: { task: 'a trial & more' }, envs: { GREETING: 'hello' } })
assert(await sandbox.isRunning())
assert.deepEqual((await sandbox.getInfo()).metadata, { task: 'a trial & more' })

// Commands: in the foreground, with input, in the background.
const result = await sandbox.commands.run('echo "$GREETING from $(pwd)"')
assert.equal(result.stdout, 'hello from /home/user\n')
await assert.rejects(sandbox.commands.run('echo trouble >&2; exit 3'), (error) => {
  return error instanceof CommandExitError && error.exitCode === 3 && error.stderr === 'trouble\n'
})
const reader = await sandbox.commands.run('read line; echo got $line', { background: true, stdin: true })
await sandbox.commands.sendStdin(reader.pid, 'a line\n')
assert.equal((await reader.wait()).stdout, 'got a line\n')
const sleeper = await sandbox.commands.run('sleep 1000', { background: true })
assert((await sandbox.commands.list()).some((process) => process.pid === sleeper.pid))
assert(await sandbox.commands.kill(sleeper.pid))

// A terminal.
let shown = ''
const decoder = new TextDecoder()
const terminal = await sandbox.pty.create({ cols: 80, rows: 24, onData: (data) => (shown += decoder.decode(data)) })
await sandbox.pty.sendInput(terminal.pid, new TextEncoder().encode('echo $((6 * 7)); exit\n'))
await terminal.wait().catch(() => {})
assert.match(shown, /42/)

// Files: text, bytes, several at once, directories.
await sandbox.files.write('data/note.txt', 'hello')
assert.equal(await sandbox.files.read('data/note.txt'), 'hello')
assert.equal(Buffer.from(await sandbox.files.read('data/note.txt', { format: 'bytes' })).toString(), 'hello')
assert.equal((await sandbox.files.write([{ path: 'a', data: '1' }, { path: 'b', data: '2' }])).length, 2)
assert(await sandbox.files.makeDir('made'))
assert(!(await sandbox.files.makeDir('made')))
await sandbox.files.rename('data/note.txt', 'made/note.txt')
assert.deepEqual((await sandbox.files.list('made')).map((entry) => entry.name), ['note.txt'])
assert(!(await sandbox.files.exists('data/note.txt')))
await sandbox.files.remove('made')

// Lists, time limits, a second client, snapshots, pauses.
await sandbox.setTimeout(300_000)
const found = await Sandbox.list({ query: { metadata: { task: 'a trial & more' } } }).nextItems()
assert.deepEqual(found.map((one) => one.sandboxId), [sandbox.sandboxId])
const again = await Sandbox.connect(sandbox.sandboxId)
assert.equal((await again.commands.run('cat a')).stdout, '1')
const snapshot = await sandbox.createSnapshot()
const copy = await Sandbox.create(snapshot.snapshotId)
assert.equal(await copy.files.read('b'), '2')
assert.notEqual(await copy.kill(), false)
await sandbox.pause()
assert(!(await sandbox.isRunning()))
await sandbox.connect()
assert.equal((await sandbox.commands.run('cat b')).stdout, '2')

assert.notEqual(await sandbox.kill(), false)
assert(!(await sandbox.isRunning()))
console.log('every call answered')
