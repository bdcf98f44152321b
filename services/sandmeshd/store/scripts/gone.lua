-- STOPPING -> GONE: ports, counts and indexes are released, and a tombstone keeps the token for a while. With
-- `silent_us` only where its node was not seen for that long: what it may still have is an orphan when it comes back.
local found = redis.call('HMGET', record(args.id), 'state', 'token', 'node', 'workspace', 'unsaved')
if args.silent_us then
  local seen = redis.call('ZSCORE', key('nodes_seen'), found[3] or '')
  if not seen or tonumber(seen) > now - args.silent_us then return {0} end
end
redis.call('ZREM', key('stopping'), args.id)
redis.call('HDEL', key('deleting'), args.id)
if found[1] ~= 'STOPPING' then return {0} end
cost_end(args.id)
unload(args.id)
forget_workspace(args.id)
forget_labels(args.id)
local reason = args.silent_us and 'its node is gone' or ''
if reason ~= '' and (found[4] or '') ~= '' and found[5] == '1' then
  reason = reason .. ': its session goes on with what was saved before'
end
event(args.id, 'deleted', reason)
redis.call('EXPIRE', key('events', args.id), args.event_seconds)
redis.call('SET', key('tomb', args.id), found[2], 'EX', args.tomb_seconds)
redis.call('DEL', record(args.id))
redis.call('ZREM', key('ids'), args.id)
notify('pool')
wake_next()
return {1}
