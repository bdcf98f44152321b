-- Returns {1} where the sandbox was deleted and its tombstone is kept, else {0}.
return {redis.call('EXISTS', key('tomb', args.id))}
