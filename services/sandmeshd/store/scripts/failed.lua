-- PENDING or STARTING -> FAILED, with ports and counts released; ARGV[2] is the error. Returns {1}, or {0} where the
-- record had changed or is another allocator's.
local found = redis.call('HMGET', record(args.id), 'state', 'owner')
if found[2] ~= args.owner then return {0} end
if found[1] ~= 'PENDING' and found[1] ~= 'STARTING' then return {0} end
fail(args.id, args.reason, ARGV[2])
return {1}
