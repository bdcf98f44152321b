// What E2B's pages show of templates, named snapshots and forks, by its own client.
import assert from 'node:assert/strict'
import { mkdir, mkdtemp, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { BuildError, Sandbox, Template, waitForFile } from 'e2b'

const started = join('/home/user', 'started')
const context = await mkdtemp(join(tmpdir(), 'e2b-'))
await mkdir(join(context, 'app'))
await writeFile(join(context, 'app', 'main.py'), "print('from the template')\n")

// A template from the base, with every kind of step, and a start of its own.
const template = Template({ fileContextPath: context })
  .fromBaseImage()
  .copy('app', 'service')
  .setEnvs({ COLOUR: 'blue', PLACE: 'here' })
  .setWorkdir('service')
  .runCmd('echo built in $(basename $PWD) for $COLOUR > built.txt')
  .setStartCmd(`touch ${started} && sleep 1000`, waitForFile(started))
const lines = []
await Template.build(template, 'node-app', { tags: ['v1'], onBuildLogs: (entry) => lines.push(entry.message) })
assert(lines.some((line) => line.includes('RUN echo built')))
assert(await Template.exists('node-app'))
assert(!(await Template.exists('node-nothing')))
await Template.assignTags('node-app:v1', ['default'])
assert.deepEqual((await Template.getTags('node-app')).map((one) => one.tag), ['default', 'v1'])
await Template.removeTags('node-app', 'v1')

const sandbox = await Sandbox.create('node-app', { timeoutMs: 120_000, envs: { PLACE: 'there' } })
const result = await sandbox.commands.run('cat built.txt; python main.py; echo $PLACE')
assert.equal(result.stdout, 'built in service for blue\nfrom the template\nthere\n')
assert(await sandbox.files.exists(started))

// A template from a template; a step that fails says which.
await Template.build(Template().fromTemplate('node-app').runCmd('echo more > more.txt'), 'node-more')
const more = await Sandbox.create('node-more', { timeoutMs: 120_000 })
assert.equal((await more.commands.run('cat more.txt; echo $COLOUR')).stdout, 'more\nblue\n')
const broken = Template().fromBaseImage().runCmd('echo trouble; exit 3')
await assert.rejects(Template.build(broken, 'node-broken'), (error) => {
  return error instanceof BuildError && error.message.includes('code 3: trouble')
})

// Copies of a running sandbox, and snapshots by name.
await sandbox.files.write('note.txt', 'of the first')
const forks = await sandbox.fork({ timeoutMs: 120_000, count: 2 })
assert.deepEqual(await Promise.all(forks.map((one) => one.files.read('note.txt'))), ['of the first', 'of the first'])
const snapshot = await sandbox.createSnapshot({ name: 'node-state' })
assert.deepEqual(snapshot.names, ['node-state:default'])
const again = await Sandbox.create('node-state', { timeoutMs: 120_000 })
assert.equal(await again.files.read('note.txt'), 'of the first')
for (const one of [...forks, again, more, sandbox]) assert.notEqual(await one.kill(), false)
assert(await Sandbox.deleteSnapshot(snapshot.snapshotId))
console.log('every call answered')
