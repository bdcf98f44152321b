-- Stops the unused sandboxes of obsolete pools, and those above the maximum of the others, the oldest first. `sizes` has
-- the maximum by pool. Returns {how many}, at most `most`: where they are as many, there may be more.
local count = 0
for _, spec_key in ipairs(redis.call('HKEYS', key('pools'))) do
  local surplus = redis.call('ZCARD', key('pool', spec_key)) - (args.sizes[spec_key] or 0)
  if surplus > 0 and count < args.most then
    local reason = args.sizes[spec_key] and 'its pool has more than its most' or 'its pool is no longer wanted'
    for _, id in ipairs(redis.call('ZRANGE', key('pool', spec_key), 0, math.min(surplus, args.most - count) - 1)) do
      if stop(id, reason) then count = count + 1 end
    end
  end
  if not args.sizes[spec_key] and redis.call('SCARD', key('pooled', spec_key)) == 0 then
    redis.call('HDEL', key('pools'), spec_key)
  end
end
return {count}
