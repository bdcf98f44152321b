-- All tokens' records, expired and revoked ones included while they are kept. With `within` those of users
-- and sandboxes of only that project. Returns {{now_us, field, value, ...}, ...}.
local answer = {}
for _, id in ipairs(redis.call('SMEMBERS', key('access_ids'))) do
  local found = redis.call('HGETALL', key('access', id))
  if #found > 0 then
    local of = redis.call('HMGET', key('access', id), 'user', 'sandbox')
    if token_within(args.within, of[1], of[2]) then answer[#answer + 1] = {text(now), unpack(found)} end
  else
    redis.call('SREM', key('access_ids'), id)
  end
end
return answer
