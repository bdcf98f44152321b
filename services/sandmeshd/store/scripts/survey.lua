-- What a sweep would find in the records, of each kind the first `most`. Returns {id, kind, node, since, detail, ...}.
local answer = {}
local function found(id, kind, since, detail)
  for _, word in ipairs({id, kind, field(id, 'node') or '', since, detail}) do answer[#answer + 1] = word end
end
local function each_due(name, kind)
  local due = redis.call('ZRANGEBYSCORE', key(name), '-inf', text(now), 'WITHSCORES', 'LIMIT', 0, args.most)
  for index = 1, #due, 2 do found(due[index], kind, due[index + 1], '') end
end
each_due('leases', 'expired')
each_due('idle', 'idle')
for _, id in ipairs(redis.call('SMEMBERS', key('starting'))) do
  if not is_alive(field(id, 'owner'), args.grace_us) then found(id, 'abandoned', field(id, 'since_us'), '') end
end
for _, id in ipairs(redis.call('ZRANGE', key('stopping'), 0, args.most - 1)) do
  local saves = field(id, 'unsaved') == '1'
  found(id, saves and 'saving' or 'stopping', field(id, 'since_us') or '0', field(id, 'trouble') or '')
end
for _, node in ipairs(redis.call('ZRANGEBYSCORE', key('nodes_seen'), '-inf', text(now - args.silent_us))) do
  local seen = redis.call('ZSCORE', key('nodes_seen'), node)
  for _, id in ipairs(redis.call('SRANDMEMBER', key('node', node), args.most)) do found(id, 'silent', seen, node) end
end
return answer
