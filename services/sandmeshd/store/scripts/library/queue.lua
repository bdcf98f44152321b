-- The queue: tickets by caller, in order of arrival; `turns` has the callers in the order in which they are served next,
-- so that one with many tickets waits as long as one with few.
local function next_turn()
  return redis.call('INCR', key('queue_sequence'))
end

local function drop_ticket(ticket, served)
  local caller = redis.call('HGET', key('queue_callers'), ticket)
  if not caller then return end
  redis.call('HDEL', key('queue_callers'), ticket)
  redis.call('HDEL', key('queue_wants'), ticket)
  redis.call('ZREM', key('queue_seen'), ticket)
  redis.call('ZREM', key('queue', caller), ticket)
  if redis.call('ZCARD', key('queue', caller)) == 0 then
    redis.call('ZREM', key('turns'), caller)
  elseif served then
    redis.call('ZADD', key('turns'), next_turn(), caller)
  end
  if redis.call('ZCARD', key('queue_seen')) == 0 then redis.call('DEL', key('queue_sequence'), key('queue_limit')) end
end

local function add_ticket(ticket, want)
  if redis.call('HSETNX', key('queue_callers'), ticket, want.caller) == 1 then
    redis.call('ZADD', key('queue', want.caller), next_turn(), ticket)
    if not redis.call('ZSCORE', key('turns'), want.caller) then
      redis.call('ZADD', key('turns'), next_turn(), want.caller)
    end
  end
  redis.call('HSET', key('queue_wants'), ticket, cjson.encode(want))
  redis.call('ZADD', key('queue_seen'), text(now), ticket)
  redis.call('SET', key('queue_limit'), text(want.limit))
end

-- Waiters of a dead process are dropped after a while.
local function drop_unseen()
  for _, ticket in ipairs(redis.call('ZRANGEBYSCORE', key('queue_seen'), '-inf', text(now - 5000000))) do
    drop_ticket(ticket)
  end
end

-- Whether no request at all can be served, which saves checking each.
local function is_full()
  local limit = tonumber(redis.call('GET', key('queue_limit')) or '0')
  if redis.call('SCARD', key('used')) < limit then return false end
  for _, spec_key in ipairs(redis.call('HKEYS', key('pools'))) do
    if redis.call('ZCARD', key('pool', spec_key)) > 0 then return false end
  end
  return true
end

-- The waiting request whose turn it is among those that could be served now, or nil.
local function first_servable()
  drop_unseen()
  if redis.call('ZCARD', key('queue_seen')) == 0 or is_full() then return nil end
  local answers = {}
  for _, caller in ipairs(redis.call('ZRANGE', key('turns'), 0, -1)) do
    for _, ticket in ipairs(redis.call('ZRANGE', key('queue', caller), 0, -1)) do
      local stated = redis.call('HGET', key('queue_wants'), ticket)
      if answers[stated] == nil then
        local want = cjson.decode(stated)
        answers[stated] = has_pooled(want) or room_for(want) ~= nil
      end
      if answers[stated] then return ticket end
    end
  end
  return nil
end

local function wake_next()
  if redis.call('ZCARD', key('queue_seen')) == 0 then return end
  local ticket = first_servable()
  if ticket then notify(ticket) end
end
