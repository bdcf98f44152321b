-- Says that an allocator lives, and finishes what nobody else will: leases that ran out, sandboxes that a dead
-- allocator was starting, waiters of dead processes. Answers {expired, abandoned}.
redis.call('ZADD', key('allocators'), text(now), args.owner)
redis.call('ZREMRANGEBYSCORE', key('allocators'), '-inf', text(now - 3600000000))
local expired = redis.call('ZRANGEBYSCORE', key('leases'), '-inf', text(now), 'LIMIT', 0, 100)
for _, id in ipairs(expired) do
  local state = field(id, 'state')
  if not state then
    redis.call('ZREM', key('leases'), id)
  elseif state == 'PENDING' or state == 'STARTING' then
    -- Its lease begins anew when it is READY.
    set_deadline(id, args.grace_us)
  else
    stop(id, 'its lease ran out')
  end
end
local abandoned = 0
for _, id in ipairs(redis.call('SMEMBERS', key('starting'))) do
  local seen = tonumber(redis.call('ZSCORE', key('allocators'), field(id, 'owner') or '') or '0')
  if seen < now - args.grace_us then
    fail(id, 'the allocator that started it ended', ARGV[2])
    abandoned = abandoned + 1
  end
end
wake_next()
return {#expired, abandoned}
