-- STARTING -> READY; ARGV[2] is how to reach it. The lease begins now; without a
-- holder it goes to its pool. Answers {1, record}, or {0, record} where it is no longer STARTING: delete the sandbox.
local found = redis.call('HMGET', record(args.id), 'state', 'owner', 'session', 'spec_key')
if found[1] == 'READY' and found[2] == args.owner then return {1, whole(args.id)} end
if found[1] ~= 'STARTING' or found[2] ~= args.owner then return {0, whole(args.id)} end
redis.call('HSET', record(args.id), 'state', 'READY', 'access', ARGV[2])
redis.call('SREM', key('starting'), args.id)
if found[3] == '' then
  redis.call('ZADD', key('pool', found[4]), text(now), args.id)
  wake_next()
else
  set_deadline(args.id, args.ttl_us)
end
tell_interested(args.id)
return {1, whole(args.id)}
