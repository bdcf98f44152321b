-- Stops the unused sandboxes of pools that are no longer wanted. Answers {how many}.
local wanted, count = {}, 0
for _, spec_key in ipairs(args.wanted) do wanted[spec_key] = true end
for _, spec_key in ipairs(redis.call('HKEYS', key('pools'))) do
  if not wanted[spec_key] then
    for _, id in ipairs(redis.call('ZRANGE', key('pool', spec_key), 0, -1)) do
      stop(id, 'its pool is no longer wanted')
      count = count + 1
    end
    redis.call('HDEL', key('pools'), spec_key)
  end
end
return {count}
