-- Quotas: the limits of a project and of a user, as the hash quota:<kind>:<name>, changed while the mesh runs. What is in use is
-- the set <kind>:<name> of sandboxes, the sums of their resources in held:<kind>:<name>, and the last minute's creates.
local MINUTE_US = 60000000
local QUOTAS = {'sandboxes', 'memory_bytes', 'cpu_millis', 'creates_per_minute'}
local HELD = {'memory_bytes', 'cpu_millis'}

local function project_of(caller)
  return redis.call('HGET', key('projects'), caller) or 'default'
end

-- Adds a sandbox's resources to the sums of its project or caller, or takes them away; other kinds have no sums.
local function hold(kind, name, id, sign)
  if kind ~= 'caller' and kind ~= 'project' then return end
  for _, resource in ipairs(HELD) do
    local amount = tonumber(field(id, resource) or '0')
    if amount > 0 then redis.call('HINCRBY', key('held', kind, name), resource, text(sign * amount)) end
  end
end

local function in_use(kind, name, quota)
  if quota == 'sandboxes' then return redis.call('SCARD', key(kind, name)) end
  if quota ~= 'creates_per_minute' then return tonumber(redis.call('HGET', key('held', kind, name), quota) or '0') end
  local creates = key('creates', kind, name)
  redis.call('ZREMRANGEBYSCORE', creates, '-inf', text(now - MINUTE_US))
  return redis.call('ZCARD', creates)
end

-- The first quota that a request does not fit into, as {kind, name, quota, in use, limit}, or nil. Where memory or processors are
-- counted, a request without a limit of its own fits into none.
local function quota_reached(want)
  if want.caller == '' then return nil end
  for _, owner in ipairs({{'project', project_of(want.caller)}, {'caller', want.caller}}) do
    local limits = redis.call('HMGET', key('quota', owner[1], owner[2]), unpack(QUOTAS))
    for index, quota in ipairs(QUOTAS) do
      if limits[index] then
        local amount, used = want[quota] or 1, in_use(owner[1], owner[2], quota)
        if amount == 0 or used + amount > tonumber(limits[index]) then
          return {owner[1], owner[2], quota, text(used), limits[index]}
        end
      end
    end
  end
  return nil
end

-- Whether a quota that is reached has room once the sandboxes that are being deleted are gone.
local function quota_frees(want, reached)
  local kind, name, quota = reached[1], reached[2], reached[3]
  local amount, ending = want[quota] or 1, 0
  if quota == 'creates_per_minute' or amount == 0 then return false end
  for _, id in ipairs(redis.call('ZRANGE', key('stopping'), 0, -1)) do
    if redis.call('SISMEMBER', key(kind, name), id) == 1 then
      ending = ending + (quota == 'sandboxes' and 1 or tonumber(field(id, quota) or '0'))
    end
  end
  return tonumber(reached[4]) - ending + amount <= tonumber(reached[5])
end

local function count_create(want, id)
  for _, owner in ipairs({{'project', project_of(want.caller)}, {'caller', want.caller}}) do
    if redis.call('HEXISTS', key('quota', owner[1], owner[2]), 'creates_per_minute') == 1 then
      local creates = key('creates', owner[1], owner[2])
      redis.call('ZADD', creates, text(now), id)
      redis.call('PEXPIRE', creates, text(MINUTE_US / 1000))
    end
  end
end
