-- A sandbox ended unexpectedly. Returns {1}, or {0} where that was known or requested.
local state = field(args.id, 'state')
if state == 'STARTING' then
  -- Its allocator finds it when it would make it READY, and tries again.
  redis.call('HSET', record(args.id), 'ended', args.reason)
end
if state ~= 'READY' and state ~= 'PAUSED' then return {0} end
lose(args.id, args.reason)
return {1}
