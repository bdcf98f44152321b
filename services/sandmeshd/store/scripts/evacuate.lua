-- Stops every sandbox of the mesh and drops its pools. Returns {how many}.
local count = 0
for _, spec_key in ipairs(redis.call('HKEYS', key('pools'))) do
  redis.call('HDEL', key('pools'), spec_key)
end
for _, id in ipairs(redis.call('ZRANGE', key('ids'), 0, -1)) do
  if field(id, 'state') ~= 'STOPPING' then
    stop(id, args.reason)
    count = count + 1
  end
end
return {count}
