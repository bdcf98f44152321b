-- STARTING -> READY; ARGV[2] is how to reach it. The lease starts now; without a
-- holder it goes to its pool. Returns {1, record}, or {0, record} where it is no longer STARTING, is another
-- allocator's, or has `ended`.
local found = redis.call('HMGET', record(args.id), 'state', 'owner', 'holder', 'spec_key', 'ttl_us', 'ended')
if found[1] == 'READY' and found[2] == args.owner then return {1, whole(args.id)} end
if found[1] ~= 'STARTING' or found[2] ~= args.owner or found[6] ~= '' then return {0, whole(args.id)} end
redis.call('HSET', record(args.id), 'access', ARGV[2])
become(args.id, 'READY', '')
cost_start(args.id, args.price)
leave_service(args.id)
if found[3] == '' then
  redis.call('ZADD', key('pool', found[4]), text(now), args.id)
  event(args.id, 'ready', 'in its pool')
  wake_next()
else
  set_deadline(args.id, tonumber(found[5]))
  meter_start(args.id)
  touch(args.id)
  event(args.id, 'leased', '')
end
return {1, whole(args.id)}
