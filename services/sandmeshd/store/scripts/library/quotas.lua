-- Quotas: the limits of a project and of a user, as the hash quota:<kind>:<name>, changed while the mesh runs. What is in use is
-- the set <kind>:<name> of sandboxes, those of them that are paused in resting:<kind>:<name>, the sums of their resources in
-- held:<kind>:<name>, and the last minute's creates.
local MINUTE_US = 60000000
local QUOTAS = {'sandboxes', 'memory_bytes', 'cpu_millis', 'creates_per_minute'}
local CREATES = #QUOTAS
local HELD = {'memory_bytes', 'cpu_millis'}

-- What one run of a script has read already: a claim asks several times, and only other scripts change it.
local projects, limits, resources = {}, {}, {}

local function project_of(caller)
  projects[caller] = projects[caller] or redis.call('HGET', key('projects'), caller) or 'default'
  return projects[caller]
end

-- Whether a project exists: it is the default one, or has a user or a quota.
local function project_exists(name)
  if name == 'default' or redis.call('EXISTS', key('quota', 'project', name)) == 1 then return true end
  for _, other in ipairs(redis.call('HVALS', key('projects'))) do
    if other == name then return true end
  end
  return false
end

-- The project that a sandbox counts in, or counted in when it was there; nil where nothing is known of it.
local function project_of_sandbox(id)
  return redis.call('HGET', record(id), 'project') or redis.call('HGET', key('usage', 'sandbox', id), 'project') or nil
end

-- Whether a token is for a user or a sandbox of a project; an empty one has all.
local function token_within(project, user, sandbox)
  if project == '' then return true end
  if user and user ~= '' then return project_of(user) == project end
  return sandbox and sandbox ~= '' and project_of_sandbox(sandbox) == project
end

local function limits_of(kind, name)
  local owner = kind .. ':' .. name
  limits[owner] = limits[owner] or redis.call('HMGET', key('quota', kind, name), 'paused_sandboxes', unpack(QUOTAS))
  return limits[owner]
end

-- Adds a sandbox's resources, which never change, to the sums of its project or caller, or takes them away; other kinds have none.
local function hold(kind, name, id, sign)
  if kind ~= 'caller' and kind ~= 'project' then return end
  resources[id] = resources[id] or redis.call('HMGET', record(id), unpack(HELD))
  for index, resource in ipairs(HELD) do
    local amount = tonumber(resources[id][index] or '0')
    if amount > 0 then redis.call('HINCRBY', key('held', kind, name), resource, text(sign * amount)) end
  end
end

-- The same of what is being deleted and still counts, so that who waits for its end need not look for it.
local function hold_ending(kind, name, id, sign)
  resources[id] = resources[id] or redis.call('HMGET', record(id), unpack(HELD))
  redis.call('HINCRBY', key('ending', kind, name), 'sandboxes', text(sign))
  for index, resource in ipairs(HELD) do
    local amount = tonumber(resources[id][index] or '0')
    if amount > 0 then redis.call('HINCRBY', key('ending', kind, name), resource, text(sign * amount)) end
  end
end

-- Paused sandboxes count against a quota of theirs where there is one, and else as all others.
local function sandboxes_in_use(kind, name)
  local all = redis.call('SCARD', key(kind, name))
  return limits_of(kind, name)[1] and all - redis.call('SCARD', key('resting', kind, name)) or all
end

local function in_use(kind, name, quota)
  if quota == 'sandboxes' then return sandboxes_in_use(kind, name) end
  if quota ~= 'creates_per_minute' then return tonumber(redis.call('HGET', key('held', kind, name), quota) or '0') end
  local creates = key('creates', kind, name)
  redis.call('ZREMRANGEBYSCORE', creates, '-inf', text(now - MINUTE_US))
  -- A clock that was set back counts none of what is ahead of it: it would stay for as long as that is.
  redis.call('ZREMRANGEBYSCORE', creates, '(' .. text(now), '+inf')
  return redis.call('ZCARD', creates)
end

-- The first quota that a request does not fit into, as {kind, name, quota, in use, limit}, or nil. Where memory or processors are
-- counted, a request without a limit fits into none.
local function quota_reached(want)
  if want.caller == '' then return nil end
  for _, owner in ipairs({{'project', project_of(want.caller)}, {'caller', want.caller}}) do
    local limited = limits_of(owner[1], owner[2])
    for index, quota in ipairs(QUOTAS) do
      local limit = limited[index + 1]
      if limit then
        local amount, used = want[quota] or 1, in_use(owner[1], owner[2], quota)
        if amount == 0 or used + amount > tonumber(limit) then
          return {owner[1], owner[2], quota, text(used), limit}
        end
      end
    end
  end
  return nil
end

-- Whether a quota that is reached has room once the sandboxes that are being deleted are gone.
local function quota_frees(want, reached)
  local kind, name, quota = reached[1], reached[2], reached[3]
  local amount = want[quota] or 1
  if quota == 'creates_per_minute' or amount == 0 then return false end
  local ending = tonumber(redis.call('HGET', key('ending', kind, name), quota) or '0')
  return tonumber(reached[4]) - ending + amount <= tonumber(reached[5])
end

local function count_create(want, id)
  for _, owner in ipairs({{'project', project_of(want.caller)}, {'caller', want.caller}}) do
    if limits_of(owner[1], owner[2])[CREATES + 1] then
      local creates = key('creates', owner[1], owner[2])
      redis.call('ZADD', creates, text(now), id)
      redis.call('PEXPIRE', creates, text(MINUTE_US / 1000))
    end
  end
end
