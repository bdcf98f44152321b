-- Usage: the time for which sandboxes are held, times their limits, and their egress; added up by sandbox, by project and day, and by
-- project. `metered` has the sandboxes that are held; `metered_us` of their records is up to when their time is counted.
local DAY_US, CRASH_US = 86400000000, 60000000
local KEPT_DAYS, KEPT_SANDBOXES = 400, 100000

local function add_to_sums(name, amount)
  local today = key('usage', 'day', text(math.floor(now / DAY_US)))
  for _, sums in ipairs({today, key('usage', 'total')}) do redis.call('HINCRBY', sums, name, text(amount)) end
  redis.call('EXPIRE', today, KEPT_DAYS * 86400)
end

-- Where many are counted, `collected` gets what is to be added to the sums of their projects.
local function add_usage(id, amounts, collected)
  local found = redis.call('HMGET', record(id), 'project', 'user', 'template')
  local project = (found[1] and found[1] ~= '') and found[1] or 'default'
  local own, measures = key('usage', 'sandbox', id), {}
  for index, one in ipairs(amounts) do measures[index] = one[1] end
  local before = redis.call('HMGET', own, unpack(measures))
  local fields = {'project', project, 'user', found[2] or '', 'template', found[3] or '', 'counted_us', text(now)}
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

-- Counts the time since the last count, up to `until_us` where that is earlier.
local function meter(id, until_us, collected)
  local found = redis.call('HMGET', record(id), 'metered_us', 'cpu_millis', 'memory_bytes')
  local since = tonumber(found[1] or '0')
  if since == 0 then return end
  local ms = math.floor((math.min(now, until_us or now) - since) / 1000)
  -- A clock that was set back counts nothing twice.
  redis.call('HSET', record(id), 'metered_us', text(ms >= 0 and since + ms * 1000 or now))
  if ms <= 0 then return end
  local cpu_ms, memory = tonumber(found[2] or '0') * ms / 1000, tonumber(found[3] or '0') * ms / 1000
  add_usage(id, {{'sandbox_ms', ms}, {'cpu_ms', cpu_ms}, {'memory_byte_seconds', memory}}, collected)
end

local function metering(id)
  redis.call('HSETNX', key('usage', 'sandbox', id), 'since_us', text(now))
  redis.call('SADD', key('metered'), id)
end

local function meter_start(id)
  redis.call('HSET', record(id), 'metered_us', text(now))
  metering(id)
end

local function meter_end(id, until_us)
  if redis.call('SREM', key('metered'), id) == 0 then return end
  meter(id, until_us)
  redis.call('HSET', record(id), 'metered_us', '0')
end

-- What a sandbox costs, from its create to its delete, in a pool too: `priced` has the prices of those that have one, in
-- thousand-millionths a second. `priced_us` of their records is up to when they are counted, `cost` what they cost until then.
local function meter_cost(id, collected)
  local found = redis.call('HMGET', record(id), 'price', 'priced_us')
  local since = tonumber(found[2] or '0')
  if since == 0 or now <= since then return end
  local cost = tonumber(found[1]) * (now - since) / 1000000
  redis.call('HSET', record(id), 'priced_us', text(now))
  redis.call('HINCRBY', record(id), 'cost', text(cost))
  add_usage(id, {{'cost_nano', cost}}, collected)
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
  change_costs(price, tonumber(since))
end

local function cost_end(id)
  local price = redis.call('HGET', key('priced'), id)
  if not price then return end
  redis.call('HDEL', key('priced'), id)
  change_costs(-tonumber(price), now)
  meter_cost(id)
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
