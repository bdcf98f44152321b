-- READY <-> PAUSED, as its runtime has it. By the owner of the intent, or, where none is alive, by the observer.
-- Returns {1, record}, or {0} where another change is in progress or it is neither.
local found = redis.call('HMGET', record(args.id), 'state', 'intent', 'owner')
if found[1] ~= 'READY' and found[1] ~= 'PAUSED' then return {0} end
if found[2] ~= '' and found[3] ~= args.owner and is_alive(found[3], args.grace_us) then return {0} end
redis.call('HSET', record(args.id), 'intent', '')
redis.call('SREM', key('acting'), args.id)
count_paused(args.id, args.state == 'PAUSED')
-- A comparison may have recorded the pause before its owner does, which knows more of it.
if args.mode or found[1] ~= args.state then
  redis.call('HSET', record(args.id), 'pause_mode', args.mode or '', 'pause_memory', args.memory or '')
end
if found[1] ~= args.state then
  become(args.id, args.state, args.state == 'PAUSED' and args.reason or '')
  event(args.id, args.state == 'PAUSED' and 'paused' or 'resumed', args.reason)
  if args.state == 'PAUSED' then
    redis.call('ZADD', key('paused'), text(now), args.id)
    notify('paused')
  else
    redis.call('ZREM', key('paused'), args.id)
  end
  touch(args.id)
end
return {1, whole(args.id)}
