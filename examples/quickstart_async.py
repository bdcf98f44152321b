import asyncio

from sandmesh import BaseSandboxAsync


async def square(number: int) -> str:
    async with BaseSandboxAsync() as box:
        result = await box.run_ipython_cell(f"{number} ** 2")
        return result.text.strip()


async def main() -> None:
    print(await asyncio.gather(*(square(number) for number in range(5))))


asyncio.run(main())
