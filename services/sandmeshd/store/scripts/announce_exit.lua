-- An allocator ends in an orderly way: what it was starting can be finished by others at once.
redis.call('ZREM', key('allocators'), args.owner)
return {1}
