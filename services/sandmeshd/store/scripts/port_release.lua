-- Counts an exposed port no more.
local found = redis.call('HMGET', record(args.sandbox), 'project', 'caller')
for _, owner in ipairs(owners_of(found[1], found[2])) do
  redis.call('ZREM', key('exposed', owner[1], owner[2]), args.sandbox .. ' ' .. args.exposure)
end
return {1}
