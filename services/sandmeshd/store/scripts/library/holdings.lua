-- Quotas of what no claim takes: snapshots, exposed ports, calls in flight and pauses, each of a project and of a caller.
-- `snapshots` has an entry for each snapshot, by id, and `snapshot_bytes` their sums, by kind and name of an owner.
local HOLDINGS = {'snapshot_bytes', 'exposed_ports', 'calls_in_flight', 'paused_sandboxes'}

local function owners_of(project, caller)
  local owners = {}
  if project and project ~= '' then owners[1] = {'project', project} end
  if caller and caller ~= '' then owners[#owners + 1] = {'caller', caller} end
  return owners
end

local function add_bytes(snapshot, sign)
  for _, owner in ipairs(owners_of(snapshot.project, snapshot.caller)) do
    local name = owner[1] .. ':' .. owner[2]
    local left = redis.call('HINCRBY', key('snapshot_bytes'), name, text(sign * snapshot.bytes))
    if left <= 0 then redis.call('HDEL', key('snapshot_bytes'), name) end
  end
end

local function drop_snapshot(id)
  local found = redis.call('HGET', key('snapshots'), id)
  if not found then return end
  add_bytes(cjson.decode(found), -1)
  redis.call('HDEL', key('snapshots'), id)
end

local function add_snapshot(snapshot, kept)
  snapshot.at, snapshot.kept = math.floor(now / 1000000), kept
  redis.call('HSET', key('snapshots'), snapshot.id, cjson.encode(snapshot))
  add_bytes(snapshot, 1)
end

-- Ports of sandboxes that ended are counted no more when somebody counts.
local ENDED = {GONE = true, FAILED = true, LOST = true, STOPPING = true}
local function exposed_ports(kind, name)
  local exposed = key('exposed', kind, name)
  redis.call('ZREMRANGEBYSCORE', exposed, '-inf', text(now))
  for _, member in ipairs(redis.call('ZRANGE', exposed, 0, -1)) do
    local state = field(string.match(member, '^%S+'), 'state')
    if not state or ENDED[state] then redis.call('ZREM', exposed, member) end
  end
  return redis.call('ZCARD', exposed)
end

-- How many calls of an owner gateways carry, and how many they may: the more of the two of each. Those that are silent have none.
local SILENT_US = 10000000
local function calls_of(kind, name, but)
  redis.call('ZREMRANGEBYSCORE', key('gateways'), '-inf', text(now - SILENT_US))
  -- After a clock was set back they report again.
  redis.call('ZREMRANGEBYSCORE', key('gateways'), '(' .. text(now), '+inf')
  local shares, carried, held = redis.call('HGETALL', key('calls', kind, name)), 0, 0
  for index = 1, #shares, 2 do
    local gateway, calls, granted = shares[index], string.match(shares[index + 1], '^(%d+) (%d+)$')
    if not redis.call('ZSCORE', key('gateways'), gateway) then
      redis.call('HDEL', key('calls', kind, name), gateway)
    elseif gateway ~= but then
      carried, held = carried + tonumber(calls), held + math.max(tonumber(calls), tonumber(granted))
    end
  end
  return carried, held
end

local function held_by(kind, name, quota)
  if quota == 'snapshot_bytes' then
    return tonumber(redis.call('HGET', key('snapshot_bytes'), kind .. ':' .. name) or '0')
  end
  if quota == 'exposed_ports' then return exposed_ports(kind, name) end
  if quota == 'paused_sandboxes' then return redis.call('SCARD', key('resting', kind, name)) end
  return (calls_of(kind, name))
end

-- The first owner whose quota an amount does not fit into, as {kind, name, in use, limit}, or nil.
local function holding_reached(owners, quota, amount)
  for _, owner in ipairs(owners) do
    local limit = redis.call('HGET', key('quota', owner[1], owner[2]), quota)
    local used = limit and held_by(owner[1], owner[2], quota)
    if limit and used + amount > tonumber(limit) then return {owner[1], owner[2], text(used), limit} end
  end
  return nil
end

-- Counts a sandbox as paused from the intent to pause it until the intent to resume it.
local function count_paused(id, paused)
  local found = redis.call('HMGET', record(id), 'project', 'caller')
  for _, owner in ipairs(owners_of(found[1], found[2])) do
    redis.call(paused and 'SADD' or 'SREM', key('resting', owner[1], owner[2]), id)
  end
end

-- The quota that a sandbox does not fit into once it is paused, or resumed, as {kind, name, quota, in use, limit}, or nil.
local function rest_reached(id, paused)
  local found = redis.call('HMGET', record(id), 'project', 'caller')
  local owners = owners_of(found[1], found[2])
  local counted = owners[1] and redis.call('SISMEMBER', key('resting', owners[1][1], owners[1][2]), id) == 1
  if not owners[1] or counted == paused then return nil end
  if paused then
    local full = holding_reached(owners, 'paused_sandboxes', 1)
    return full and {full[1], full[2], 'paused_sandboxes', full[3], full[4]}
  end
  for _, owner in ipairs(owners) do
    local limited = limits_of(owner[1], owner[2])
    local used = limited[1] and limited[2] and sandboxes_in_use(owner[1], owner[2])
    if used and used >= tonumber(limited[2]) then return {owner[1], owner[2], 'sandboxes', text(used), limited[2]} end
  end
  return nil
end
