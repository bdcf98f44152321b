-- It ended without having been asked to. A leased one keeps its place, so that its holder learns why; an unused one
-- goes. Answers {1}, or {0} where that was known or asked for.
local state = field(args.id, 'state')
if state ~= 'READY' and state ~= 'PAUSED' and state ~= 'STARTING' then return {0} end
if state == 'STARTING' and not args.starting then return {0} end
unload(args.id)
if field(args.id, 'session') == '' then
  stop(args.id, args.reason)
  notify('pool')
else
  redis.call('HSET', record(args.id), 'state', 'LOST', 'reason', args.reason)
  redis.call('SREM', key('starting'), args.id)
end
tell_interested(args.id)
wake_next()
return {1}
