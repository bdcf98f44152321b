-- Changes the quota of a project or a caller: `limits` are set, those in `removed` are none from now on. What is in use stays.
local quota, owner = key('quota', args.kind, args.name), args.kind .. ':' .. args.name
for name, limit in pairs(args.limits) do redis.call('HSET', quota, name, text(limit)) end
for _, name in ipairs(args.removed) do redis.call('HDEL', quota, name) end
if redis.call('EXISTS', quota) == 1 then
  redis.call('SADD', key('quotas'), owner)
else
  redis.call('SREM', key('quotas'), owner)
end
if redis.call('HEXISTS', quota, 'creates_per_minute') == 0 then redis.call('DEL', key('creates', args.kind, args.name)) end
if redis.call('HEXISTS', quota, 'calls_in_flight') == 1 then
  redis.call('SADD', key('call_quotas'), owner)
else
  redis.call('SREM', key('call_quotas'), owner)
  redis.call('DEL', key('calls', args.kind, args.name))
end
-- Requests that wait may fit now.
wake_next()
return {1}
