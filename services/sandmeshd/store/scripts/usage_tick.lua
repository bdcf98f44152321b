-- Counts the time of all sandboxes that are held, unless an allocator did so within the interval. Returns {whether it did}.
if not redis.call('SET', key('usage', 'turn'), args.owner, 'NX', 'PX', args.interval_ms) then return {0} end
meter_all()
forget_usage()
return {1}
