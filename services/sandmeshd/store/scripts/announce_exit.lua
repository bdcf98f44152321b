-- An allocator shuts down: others can finish what it was starting at once.
redis.call('ZREM', key('allocators'), args.owner)
return {1}
