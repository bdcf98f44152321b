-- Counts an exposed port of a sandbox until it is released or ends, where it fits into the quotas of the sandbox's owners. Returns
-- nothing, or {kind, name, in use, limit} of the quota that it does not fit into.
local found = redis.call('HMGET', record(args.sandbox), 'project', 'caller')
local owners, member = owners_of(found[1], found[2]), args.sandbox .. ' ' .. args.exposure
local reached = holding_reached(owners, 'exposed_ports', 1)
if reached then return reached end
for _, owner in ipairs(owners) do
  local exposed = key('exposed', owner[1], owner[2])
  redis.call('ZADD', exposed, text(args.expires_us), member)
  local last = redis.call('ZRANGE', exposed, -1, -1, 'WITHSCORES')[2]
  redis.call('PEXPIREAT', exposed, text(math.ceil(tonumber(last) / 1000)))
end
return {}
