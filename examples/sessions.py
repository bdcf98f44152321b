import asyncio

from sandmesh import SandboxService


async def main() -> None:
    service = SandboxService()
    await service.start()
    [box] = await service.connect_async("chat-1", user_id="ada", sandbox_types=["base"])
    await box.run_ipython_cell("visits = 1")
    # Later, from any process that uses the same mesh: the same ids give the same sandbox with its state.
    [again] = await service.connect_async("chat-1", user_id="ada", sandbox_types=["base"])
    print((await again.run_ipython_cell("visits + 1")).text)
    await service.release_async("chat-1", user_id="ada")
    await service.stop()


asyncio.run(main())
