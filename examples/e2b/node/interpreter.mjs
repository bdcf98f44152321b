// What E2B's start pages show of its code interpreter, by its own client.
import assert from 'node:assert/strict'
import { Sandbox } from '@e2b/code-interpreter'

const sandbox = await Sandbox.create({ timeoutMs: 120_000 })
await sandbox.runCode('x = 1')
const execution = await sandbox.runCode('x += 1; x')
assert.equal(execution.text, '2')

const lines = []
await sandbox.runCode('print("a")\nprint("b")', { onStdout: (output) => lines.push(output.line) })
assert.equal(lines.join(''), 'a\nb\n')

const failed = await sandbox.runCode('1 / 0')
assert.equal(failed.error.name, 'ZeroDivisionError')

const context = await sandbox.createCodeContext({ cwd: '/tmp' })
assert.equal((await sandbox.runCode('import os; os.getcwd()', { context })).text, '/tmp')
assert.equal((await sandbox.runCode('"x" in globals()', { context })).text, 'False')

const shown = await sandbox.runCode('from IPython.display import HTML; HTML("<b>bold</b>")')
assert.equal(shown.results[0].html, '<b>bold</b>')

assert.notEqual(await sandbox.kill(), false)
console.log('every call answered')
