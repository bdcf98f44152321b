-- PENDING -> STARTING, before a driver is called. Returns {1}, or {0} where another allocator owns the start by now.
local found = redis.call('HMGET', record(args.id), 'state', 'owner')
if (found[1] ~= 'PENDING' and found[1] ~= 'STARTING') or found[2] ~= args.owner then return {0} end
redis.call('HSET', record(args.id), 'ended', '')
become(args.id, 'STARTING', '')
return {1}
