-- Usage: the time for which sandboxes are held, times their limits, and their egress; added up by sandbox, by project and day, and by
-- project. `metered` has the sandboxes that are held; `metered_us` of their records is up to when their time is counted. What they
-- cost, from create to delete, in a pool too: `priced` has the prices of those that have one, in thousand-millionths a second, and
-- `unheld` those of them that are not held; `priced_us` of their records is up to when they are counted, `cost` what they cost until
-- then.
local DAY_US, CRASH_US = 86400000000, 60000000
local KEPT_DAYS, KEPT_SANDBOXES = 400, 100000

local function add_to_sums(name, amount)
  local today = key('usage', 'day', text(math.floor(now / DAY_US)))
  for _, sums in ipairs({today, key('usage', 'total')}) do redis.call('HINCRBY', sums, name, text(amount)) end
  redis.call('EXPIRE', today, KEPT_DAYS * 86400)
end

-- Adds amounts to the usage of one sandbox, whose `owner` is {project, user, template}, and of its project. Where many are counted,
-- `collected` gets what is to be added to the sums of their projects.
local function add_usage(id, owner, amounts, collected)
  local project = (owner[1] and owner[1] ~= '') and owner[1] or 'default'
  local own, measures = key('usage', 'sandbox', id), {}
  for index, one in ipairs(amounts) do measures[index] = one[1] end
  local before = redis.call('HMGET', own, unpack(measures))
  local fields = {'project', project, 'user', owner[2] or '', 'template', owner[3] or '', 'counted_us', text(now)}
  for index, one in ipairs(amounts) do
    -- The same everywhere, so that sums of sandboxes are those of their projects.
    local name, amount = one[1] .. ':' .. project, math.floor(one[2] + 0.5)
    if amount > 0 then
      fields[#fields + 1] = one[1]
      fields[#fields + 1] = text(tonumber(before[index] or '0') + amount)
      if collected then collected[name] = (collected[name] or 0) + amount else add_to_sums(name, amount) end
    end
  end
  redis.call('HSET', own, unpack(fields))
  redis.call('ZADD', key('usage', 'sandboxes'), text(now), id)
end

local METERED = {
  'project', 'user', 'template', 'metered_us', 'cpu_millis', 'memory_bytes', 'priced_us', 'price', 'cost',
}

-- The time since the last count, up to `until_us` where that is earlier.
local function held_since(found, until_us, set, amounts)
  local since = tonumber(found[4] or '0')
  if since == 0 then return end
  local ms = math.floor((math.min(now, until_us or now) - since) / 1000)
  set[#set + 1] = 'metered_us'
  -- A clock that was set back counts nothing twice.
  set[#set + 1] = text(ms >= 0 and since + ms * 1000 or now)
  if ms <= 0 then return end
  amounts[#amounts + 1] = {'sandbox_ms', ms}
  amounts[#amounts + 1] = {'cpu_ms', tonumber(found[5] or '0') * ms / 1000}
  amounts[#amounts + 1] = {'memory_byte_seconds', tonumber(found[6] or '0') * ms / 1000}
end

-- What it cost since the last count.
local function cost_since(found, set, amounts)
  local since = tonumber(found[7] or '0')
  if since == 0 or now <= since then return end
  local cost = math.floor(tonumber(found[8]) * (now - since) / 1000000 + 0.5)
  for _, value in ipairs({'priced_us', text(now), 'cost', text(tonumber(found[9] or '0') + cost)}) do set[#set + 1] = value end
  amounts[#amounts + 1] = {'cost_nano', cost}
end

-- Counts what a sandbox had and cost since it was counted last; `only` is 'held' or 'priced' where it is just the one of them.
local function meter(id, only, until_us, collected)
  local found = redis.call('HMGET', record(id), unpack(METERED))
  local set, amounts = {}, {}
  if only ~= 'priced' then held_since(found, until_us, set, amounts) end
  if only ~= 'held' then cost_since(found, set, amounts) end
  if #set > 0 then redis.call('HSET', record(id), unpack(set)) end
  if #amounts > 0 then add_usage(id, found, amounts, collected) end
end

local function metering(id)
  redis.call('HSETNX', key('usage', 'sandbox', id), 'since_us', text(now))
  redis.call('SADD', key('metered'), id)
  redis.call('SREM', key('unheld'), id)
end

local function meter_start(id)
  redis.call('HSET', record(id), 'metered_us', text(now))
  metering(id)
end

local function meter_end(id, until_us)
  if redis.call('SREM', key('metered'), id) == 0 then return end
  meter(id, 'held', until_us)
  redis.call('HSET', record(id), 'metered_us', '0')
  if redis.call('HEXISTS', key('priced'), id) == 1 then redis.call('SADD', key('unheld'), id) end
end

-- The whole mesh's costs of the day so far, and what all its sandboxes cost a second: `costs` has both as of `at_us`, so that a
-- claim under a cap looks at no sandbox.
local function costs_today()
  local found = redis.call('HMGET', key('costs'), 'spent', 'rate', 'at_us')
  local spent, rate, at = tonumber(found[1] or '0'), tonumber(found[2] or '0'), tonumber(found[3] or '0')
  local midnight = math.floor(now / DAY_US) * DAY_US
  if at < midnight then spent, at = 0, midnight end
  return spent + rate * math.max(0, now - at) / 1000000, rate
end

-- One more, or with a price below 0 one less; of what it cost before, `since_us` on, today's part is added.
local function change_costs(price, since_us)
  local spent, rate = costs_today()
  local midnight = math.floor(now / DAY_US) * DAY_US
  spent = spent + price * math.max(0, now - math.max(since_us, midnight)) / 1000000
  redis.call('HSET', key('costs'), 'spent', text(spent), 'rate', text(rate + price), 'at_us', text(now))
end

local function cost_start(id, price)
  if not price or price == 0 or redis.call('HSETNX', key('priced'), id, text(price)) == 0 then return end
  local since = field(id, 'created_us')
  redis.call('HSET', record(id), 'price', text(price), 'priced_us', since)
  if redis.call('SISMEMBER', key('metered'), id) == 0 then redis.call('SADD', key('unheld'), id) end
  change_costs(price, tonumber(since))
end

local function cost_end(id)
  local price = redis.call('HGET', key('priced'), id)
  if not price then return end
  redis.call('HDEL', key('priced'), id)
  redis.call('SREM', key('unheld'), id)
  change_costs(-tonumber(price), now)
  meter(id, 'priced')
  redis.call('HSET', record(id), 'priced_us', '0')
end

-- The day's costs of the whole mesh, as what `quota_reached` returns, where they have reached a limit that is not 0.
local function cost_reached(limit)
  if not limit or limit == 0 then return nil end
  local spent = costs_today()
  if spent < limit then return nil end
  return {'mesh', '', 'cost_per_day', text(spent), text(limit)}
end

-- The sandboxes that were counted longest ago are forgotten, their projects' sums are not.
local function forget_usage()
  local sandboxes = key('usage', 'sandboxes')
  local old = redis.call('ZRANGEBYSCORE', sandboxes, '-inf', text(now - KEPT_DAYS * DAY_US), 'LIMIT', 0, 1000)
  local surplus = math.min(1000, redis.call('ZCARD', sandboxes) - KEPT_SANDBOXES)
  if #old < surplus then old = redis.call('ZRANGE', sandboxes, 0, surplus - 1) end
  for _, id in ipairs(old) do
    redis.call('ZREM', sandboxes, id)
    redis.call('DEL', key('usage', 'sandbox', id))
  end
end
