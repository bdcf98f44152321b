-- An allocator shuts down: others can finish what it was starting immediately.
redis.call('ZREM', key('allocators'), args.owner)
return {1}
