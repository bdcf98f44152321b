-- Postpones a deletion that failed. Returns {1}, or {0} where there is nothing to delete.
if not redis.call('ZSCORE', key('stopping'), args.id) then return {0} end
redis.call('ZADD', key('stopping'), text(now + args.delay_us), args.id)
redis.call('HDEL', key('deleting'), args.id)
if args.unsaved and field(args.id, 'trouble') ~= args.trouble then event(args.id, 'unsaved', args.trouble) end
redis.call('HSET', record(args.id), 'trouble', args.trouble)
return {1}
