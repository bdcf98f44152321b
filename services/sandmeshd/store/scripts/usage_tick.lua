-- Takes the turn to count the usage of all sandboxes, unless an allocator did within the interval. Returns {whether it did}.
if not redis.call('SET', key('usage', 'turn'), args.owner, 'NX', 'PX', args.interval_ms) then return {0} end
forget_usage()
return {1}
