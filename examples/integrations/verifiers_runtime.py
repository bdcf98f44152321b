"""The runtime of verifiers (prime-rl) for E2B, on a mesh: commands, a live process, and files."""

import asyncio
import os

from verifiers.v1.runtimes import E2BConfig, make_runtime


async def main() -> None:
    """Run what a rollout runs, in a sandbox of an image."""
    runtime = make_runtime(E2BConfig(image=os.environ.get("IMAGE", "python:3.12-slim"), memory=1, cpu=1))
    try:
        await runtime.start()
        await runtime.prepare_setup()
        done = await runtime.run(["python3", "-c", "import os; print(6 * 7, os.environ['COLOUR'])"], {"COLOUR": "blue"})
        assert (done.exit_code, done.stdout) == (0, "42 blue\n"), done
        failed = await runtime.run(["sh", "-c", "echo why >&2; exit 3"], {})
        assert (failed.exit_code, failed.stderr) == (3, "why\n"), failed
        await runtime.write("data/raw.bin", bytes(range(256)))
        assert await runtime.read("data/raw.bin") == bytes(range(256))
        long = await runtime.run_program(["sh", "-c", "sleep 1; wc -c < data/raw.bin"], {})
        assert (long.exit_code, long.stdout.strip()) == (0, "256"), long
        process = await runtime.open_process(["cat"], {})
        await process.write(b"typed\xff\n")
        assert await anext(aiter(process.stdout)) == b"typed\xff\n"
        await process.kill()
        assert await process.wait() != 0
        assert await runtime.alive()
    finally:
        await runtime.stop()
    print("a rollout ran")


asyncio.run(main())
