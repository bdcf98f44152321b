-- Records that an allocator and the nodes that answered it are alive, and finishes what no other process will: expired leases
-- and idle timeouts, sandboxes that a dead allocator was starting or deleting, those of silent nodes, waiters of dead processes.
-- Returns {expired, idle, abandoned, lost, next_us, ids}: counts of at most `most`, where one is reached there may be more;
-- in how many microseconds the next lease or idle timeout ends, -1 where there is none; and the sandboxes that the allocator
-- pauses now, which comes up again after `pause_again_us` for what could not be.
-- No sweep ran since `last`: the machine slept, or all allocators or the store stood still, and the clock went on. Nothing
-- could be renewed or used meanwhile, so that time ends no lease, and speaks against no node and no allocator.
local function forgive(last)
  local function shift(name, first)
    local seen = redis.call('ZRANGEBYSCORE', key(name), text(first), text(last), 'WITHSCORES')
    for index = 1, #seen, 2 do redis.call('ZADD', key(name), text(tonumber(seen[index + 1]) + now - last), seen[index]) end
  end
  shift('allocators', last - 2 * args.grace_us)
  shift('nodes_seen', last - args.node_grace_us)
  local after = '(' .. text(last)
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', key('leases'), after, '+inf')) do
    -- Holders renew after a third of a lease, which their own clock may have slept through.
    local found = redis.call('HMGET', record(id), 'deadline_us', 'ttl_us')
    local least = now + tonumber(found[2] or '0') / 2
    if found[1] and tonumber(found[1]) < least then
      redis.call('HSET', record(id), 'deadline_us', text(least))
      redis.call('ZADD', key('leases'), text(least), id)
    end
  end
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', key('idle'), after, text(now))) do touch(id) end
end
local last = tonumber(redis.call('GET', key('swept')) or now)
redis.call('SET', key('swept'), text(now))
if now - last > args.pause_us then forgive(last) end

redis.call('ZADD', key('allocators'), text(now), args.owner)
redis.call('ZREMRANGEBYSCORE', key('allocators'), '-inf', text(now - 3600000000))
for first = 1, #args.healthy, 500 do
  local seen = {}
  for index = first, math.min(first + 499, #args.healthy) do
    seen[#seen + 1] = text(now)
    seen[#seen + 1] = args.healthy[index]
  end
  redis.call('ZADD', key('nodes_seen'), unpack(seen))
end

local function due(name)
  return redis.call('ZRANGEBYSCORE', key(name), '-inf', text(now), 'LIMIT', 0, args.most)
end

local expired, idle, abandoned, lost = 0, 0, 0, 0
for _, id in ipairs(due('leases')) do
  local state = field(id, 'state')
  if not state then
    redis.call('ZREM', key('leases'), id)
  elseif state == 'PENDING' or state == 'STARTING' then
    -- Its lease restarts when it is READY.
    redis.call('ZADD', key('leases'), text(now + args.grace_us), id)
    redis.call('HSET', record(id), 'deadline_us', text(now + args.grace_us))
  else
    stop(id, 'its lease ran out')
    expired = expired + 1
  end
end
local pausing = {}
for _, id in ipairs(due('idle')) do
  if field(id, 'on_idle') == 'pause' then
    redis.call('ZADD', key('idle'), text(now + args.pause_again_us), id)
    pausing[#pausing + 1] = id
  else
    stop(id, args.idle_reason)
  end
  idle = idle + 1
end

-- Its own that it does not start: the answer that gave it to it was lost.
local in_hand = {}
if type(args.starting) == 'table' then
  for _, id in ipairs(args.starting) do in_hand[id] = true end
end
local function is_forgotten(id, owner)
  if type(args.starting) ~= 'table' or owner ~= args.owner or in_hand[id] then return false end
  return tonumber(field(id, 'since_us') or '0') < now - args.grace_us
end
for _, id in ipairs(redis.call('SMEMBERS', key('starting'))) do
  if abandoned == args.most then break end
  local owner = field(id, 'owner')
  if not is_alive(owner, 2 * args.grace_us) or is_forgotten(id, owner) then
    fail(id, 'the allocator that started it ended', ARGV[2])
    abandoned = abandoned + 1
  elseif not is_alive(owner, args.grace_us) then
    -- A waiter can go on with it.
    notify_waiters(id)
  end
end

-- What a dead allocator was pausing or resuming is as its node has it, which a comparison records.
for _, id in ipairs(redis.call('SMEMBERS', key('acting'))) do
  local found = redis.call('HMGET', record(id), 'state', 'owner')
  if not is_alive(found[2], args.grace_us) then
    redis.call('HSET', record(id), 'intent', '')
    redis.call('SREM', key('acting'), id)
    count_paused(id, found[1] == 'PAUSED')
  end
end

-- What a dead allocator was deleting, and perhaps saving, is free for another's workers.
local deleting = redis.call('HGETALL', key('deleting'))
for index = 1, #deleting, 2 do
  local id, owner = deleting[index], deleting[index + 1]
  if owner ~= args.owner and not is_alive(owner, args.grace_us) then
    redis.call('HDEL', key('deleting'), id)
    redis.call('ZADD', key('stopping'), 'XX', text(now), id)
    notify('stopping')
  end
end

for _, node in ipairs(redis.call('ZRANGEBYSCORE', key('nodes_seen'), '-inf', text(now - args.node_grace_us))) do
  if lost == args.most then break end
  -- Some of many: those that are lost are no longer among them.
  for _, id in ipairs(redis.call('SRANDMEMBER', key('node', node), 2 * args.most)) do
    local state = field(id, 'state')
    -- What starts is its allocator's, which tries another node.
    if (state == 'READY' or state == 'PAUSED') and lost < args.most then
      lose(id, 'its node ' .. node .. ' does not answer')
      lost = lost + 1
    end
  end
end
-- What is to be deleted on a silent node is given up by when it was seen last: that is remembered for a day.
if lost < args.most then
  redis.call('ZREMRANGEBYSCORE', key('nodes_seen'), '-inf', text(now - args.node_grace_us - 86400000000))
end
drop_unseen()
wake_next()
local next_us = -1
for _, name in ipairs({'leases', 'idle'}) do
  local first = redis.call('ZRANGE', key(name), 0, 0, 'WITHSCORES')[2]
  local left = first and math.max(0, tonumber(first) - now)
  if left and (next_us < 0 or left < next_us) then next_us = left end
end
return {expired, idle, abandoned, lost, next_us, pausing}
