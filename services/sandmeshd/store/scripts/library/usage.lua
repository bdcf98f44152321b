-- Usage: the time for which sandboxes are held, times their limits, and their egress; added up by sandbox, by project and day, and by
-- project. `metered` has the sandboxes that are held; `metered_us` of their records is up to when their time is counted.
local DAY_US, CRASH_US = 86400000000, 60000000
local KEPT_DAYS, KEPT_SANDBOXES = 400, 100000

local function add_usage(id, amounts)
  local found = redis.call('HMGET', record(id), 'project', 'user', 'template')
  local project = (found[1] and found[1] ~= '') and found[1] or 'default'
  local today, own = key('usage', 'day', text(math.floor(now / DAY_US))), key('usage', 'sandbox', id)
  for _, one in ipairs(amounts) do
    local measure, amount = one[1], one[2]
    if amount > 0 then
      for _, sums in ipairs({today, key('usage', 'total')}) do
        redis.call('HINCRBY', sums, measure .. ':' .. project, text(amount))
      end
      redis.call('HINCRBY', own, measure, text(amount))
    end
  end
  redis.call('HSET', own, 'project', project, 'user', found[2] or '', 'template', found[3] or '', 'counted_us', text(now))
  redis.call('EXPIRE', today, KEPT_DAYS * 86400)
  redis.call('ZADD', key('usage', 'sandboxes'), text(now), id)
end

-- Counts the time since the last count, up to `until_us` where that is earlier.
local function meter(id, until_us)
  local since = tonumber(field(id, 'metered_us') or '0')
  if since == 0 then return end
  local ms = math.floor((math.min(now, until_us or now) - since) / 1000)
  -- A clock that was set back counts nothing twice.
  redis.call('HSET', record(id), 'metered_us', text(ms >= 0 and since + ms * 1000 or now))
  if ms <= 0 then return end
  local held = redis.call('HMGET', record(id), 'cpu_millis', 'memory_bytes')
  local cpu_ms, memory = tonumber(held[1] or '0') * ms / 1000, tonumber(held[2] or '0') * ms / 1000
  add_usage(id, {{'sandbox_ms', ms}, {'cpu_ms', cpu_ms}, {'memory_byte_seconds', memory}})
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

-- What a sandbox costs, from its create to its delete, in a pool too: `price` in thousand-millionths a second. `priced` has those
-- that have a price; `priced_us` of their records is up to when they are counted, `cost` what they cost until then.
local function meter_cost(id)
  local found = redis.call('HMGET', record(id), 'price', 'priced_us')
  local since = tonumber(found[2] or '0')
  if since == 0 or now <= since then return end
  local cost = tonumber(found[1]) * (now - since) / 1000000
  redis.call('HSET', record(id), 'priced_us', text(now))
  redis.call('HINCRBY', record(id), 'cost', text(cost))
  add_usage(id, {{'cost_nano', cost}})
end

local function cost_start(id, price)
  if not price or price == 0 then return end
  redis.call('HSET', record(id), 'price', text(price), 'priced_us', field(id, 'created_us'))
  redis.call('SADD', key('priced'), id)
end

local function cost_end(id)
  if redis.call('SREM', key('priced'), id) == 0 then return end
  meter_cost(id)
  redis.call('HSET', record(id), 'priced_us', '0')
end

local function meter_costs()
  for _, id in ipairs(redis.call('SMEMBERS', key('priced'))) do
    if field(id, 'state') then meter_cost(id) else redis.call('SREM', key('priced'), id) end
  end
end

-- The day's costs of the whole mesh, as what `quota_reached` returns, where they have reached a limit that is not 0.
local function cost_reached(limit)
  if not limit or limit == 0 then return nil end
  meter_costs()
  local day, spent = redis.call('HGETALL', key('usage', 'day', text(math.floor(now / DAY_US)))), 0
  for index = 1, #day, 2 do
    if string.find(day[index], '^cost_nano:') then spent = spent + tonumber(day[index + 1]) end
  end
  if spent < limit then return nil end
  return {'mesh', '', 'cost_per_day', text(spent), text(limit)}
end

local function meter_all()
  meter_costs()
  for _, id in ipairs(redis.call('SMEMBERS', key('metered'))) do
    if field(id, 'state') then meter(id) else redis.call('SREM', key('metered'), id) end
  end
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
