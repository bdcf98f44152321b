-- Takes sandboxes that are to be deleted, for a while: another worker gets them when this one did not finish, and a sweep
-- frees them when its allocator ended.
-- Returns {id, node, token, the key of its workspace or an empty string, ...}.
local due = redis.call('ZRANGEBYSCORE', key('stopping'), '-inf', text(now), 'LIMIT', 0, args.limit)
local answer = {}
for _, id in ipairs(due) do
  local found = redis.call('HMGET', record(id), 'node', 'token', 'workspace', 'unsaved')
  local saves = found[4] == '1'
  redis.call('ZADD', key('stopping'), text(now + (saves and args.save_hold_us or args.hold_us)), id)
  redis.call('HSET', key('deleting'), id, args.owner)
  if saves then note_saving(id) end
  for _, value in ipairs({id, found[1] or '', found[2] or '0', saves and found[3] or ''}) do answer[#answer + 1] = value end
end
return answer
