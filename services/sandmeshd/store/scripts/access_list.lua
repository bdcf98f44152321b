-- All tokens' records, expired and revoked ones included while they are kept. Returns {{now_us, field, value, ...}, ...}.
local answer = {}
for _, id in ipairs(redis.call('SMEMBERS', key('access_ids'))) do
  local found = redis.call('HGETALL', key('access', id))
  if #found > 0 then
    answer[#answer + 1] = {text(now), unpack(found)}
  else
    redis.call('SREM', key('access_ids'), id)
  end
end
return answer
