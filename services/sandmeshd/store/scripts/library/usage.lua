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

local function meter_all()
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
