-- What is used, and by what. Returns {used, next deadline or 0, unused by template as {template, count, ...}, and for each of
-- template, node and caller {name, count, ...}, and requests in the queue}.
local function counts(kind)
  local answer = {}
  for _, name in ipairs(redis.call('SMEMBERS', key('names', kind))) do
    answer[#answer + 1] = name
    answer[#answer + 1] = redis.call('SCARD', key(kind, name))
  end
  return answer
end
local unused = {}
local pools = redis.call('HGETALL', key('pools'))
for index = 1, #pools, 2 do
  unused[#unused + 1] = pools[index + 1]
  unused[#unused + 1] = redis.call('ZCARD', key('pool', pools[index]))
end
local soonest = redis.call('ZRANGE', key('leases'), 0, 0, 'WITHSCORES')[2] or '0'
return {redis.call('SCARD', key('used')), soonest, unused, counts('template'), counts('node'), counts('caller'),
  redis.call('HLEN', key('queue_wants'))}
