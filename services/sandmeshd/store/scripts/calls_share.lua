-- Takes a gateway's report and returns its share of each owner's quota of calls: {kind, name, limit, granted, carried elsewhere, ...}.
-- A single gateway has all. Of several, one with calls gets a sixteenth of the limit on top of them, or what it wants; what it
-- does not use goes back with its next report, and all when it is leaving.
local limited = redis.call('SMEMBERS', key('call_quotas'))
if #limited == 0 then return {} end
if args.leaving then
  redis.call('ZREM', key('gateways'), args.gateway)
else
  redis.call('ZADD', key('gateways'), text(now), args.gateway)
end
local answer = {}
for _, owner in ipairs(limited) do
  local kind, name = string.match(owner, '^(%a+):(.*)$')
  local limit = tonumber(redis.call('HGET', key('quota', kind, name), 'calls_in_flight') or '0')
  local carried, held = calls_of(kind, name, args.gateway)
  local count, granted = args.counts[owner] or {0, 0}, 0
  local calls, wanted = count[1], count[2]
  if args.leaving then
    granted = 0
  elseif redis.call('ZCARD', key('gateways')) == 1 then
    granted = limit
  elseif calls + wanted > 0 then
    granted = math.min(math.max(0, limit - held), calls + math.max(wanted, math.floor(limit / 16)))
  end
  if calls + granted > 0 then
    redis.call('HSET', key('calls', kind, name), args.gateway, text(calls) .. ' ' .. text(granted))
  else
    redis.call('HDEL', key('calls', kind, name), args.gateway)
  end
  for _, part in ipairs({kind, name, text(limit), text(granted), text(carried)}) do answer[#answer + 1] = part end
end
return answer
