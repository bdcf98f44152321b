-- Capacity: sets of ids, so that counting or releasing twice changes nothing. Each set beside `used` has its
-- name in `names:<kind>` as long as it has members.
local function count_in(kind, name, id)
  if redis.call('SADD', key(kind, name), id) == 1 then hold(kind, name, id, 1) end
  redis.call('SADD', key('names', kind), name)
end

local function count_out(kind, name, id)
  if redis.call('SREM', key(kind, name), id) == 1 then hold(kind, name, id, -1) end
  if redis.call('SCARD', key(kind, name)) > 0 then return end
  redis.call('SREM', key('names', kind), name)
  redis.call('DEL', key('held', kind, name), key('ending', kind, name))
end

-- The least loaded of many nodes, as long as nothing changes it: who waits in a queue mostly waits for the same.
local choices = {}

local function load(id, node, template)
  choices = {}
  redis.call('SADD', key('used'), id)
  count_in('node', node, id)
  count_in('template', template, id)
end

-- It counts until its deletion is done.
local function count_ending(id)
  local found = redis.call('HMGET', record(id), 'caller', 'project', 'session')
  if (found[3] or '') == '' or redis.call('SISMEMBER', key('caller', found[1]), id) == 0 then return end
  hold_ending('caller', found[1], id, 1)
  hold_ending('project', found[2] or 'default', id, 1)
  redis.call('HSET', record(id), 'ending', '1')
end

local function unload(id)
  local found = redis.call('HMGET', record(id), 'node', 'template', 'ports', 'caller', 'session', 'project', 'ending')
  if not found[1] then return end
  choices = {}
  redis.call('SREM', key('used'), id)
  count_out('node', found[1], id)
  count_out('template', found[2], id)
  if found[7] == '1' then
    hold_ending('caller', found[4], id, -1)
    hold_ending('project', found[6] or 'default', id, -1)
    redis.call('HSET', record(id), 'ending', '')
  end
  if found[5] ~= '' then
    count_out('caller', found[4], id)
    count_out('project', found[6] or 'default', id)
  end
  for port in string.gmatch(found[3] or '', '%d+') do
    if redis.call('HGET', key('ports', found[1]), port) == id then
      redis.call('HDEL', key('ports', found[1]), port)
    end
  end
  redis.call('HSET', record(id), 'ports', '')
end

-- How many ports a sandbox takes on a node: those that were requested, and its agent's where that needs one.
local function ports_of(node, want)
  return want.ports + (node.own_ports or 0)
end

-- A port in use by others is withheld until its time has passed.
local function forget_clashes(node)
  for _, port in ipairs(redis.call('ZRANGEBYSCORE', key('clashes', node.id), '-inf', text(now))) do
    redis.call('ZREM', key('clashes', node.id), port)
    redis.call('HDEL', key('ports', node.id), port)
  end
end

local function take_ports(node, count, id)
  local taken = {}
  local size = node.last - node.first + 1
  local offset = tonumber(redis.call('HGET', key('port_cursor'), node.id) or '0') % math.max(size, 1)
  for step = 0, size - 1 do
    if #taken == count then break end
    local port = text(node.first + (offset + step) % size)
    if redis.call('HSETNX', key('ports', node.id), port, id) == 1 then taken[#taken + 1] = port end
  end
  -- The next lease goes on from here: a port that was just released stays unused as long as possible.
  if #taken > 0 then
    redis.call('HSET', key('port_cursor'), node.id, text(tonumber(taken[#taken]) - node.first + 1))
  end
  return table.concat(taken, ',')
end

-- How many sandboxes of batches may start simultaneously on a node: fewer while others start, and one at least.
local function batch_starts(want)
  local others = redis.call('SCARD', key('starting')) - redis.call('HLEN', key('batch_starts'))
  return math.max(1, want.batch.starts - math.ceil(others / #want.nodes))
end

local function has_room(node, want)
  if redis.call('SCARD', key('node', node.id)) >= node.limit then return false, 'node' end
  if want.batch and redis.call('SCARD', key('batch_starting', node.id)) >= batch_starts(want) then return false, 'starts' end
  local count = ports_of(node, want)
  if count == 0 then return true end
  forget_clashes(node)
  local size = node.last > 0 and node.last - node.first + 1 or 0
  return size - redis.call('HLEN', key('ports', node.id)) >= count, 'ports'
end

-- A pool's sandbox counts against its claimer's limits too; a want without a caller is the pool's own. Returns whether there is
-- room, else the limit that is reached.
local function caller_has_room(want)
  local limited = want.caller_limit > 0 and redis.call('SCARD', key('caller', want.caller)) >= want.caller_limit
  if limited then return false, 'caller' end
  if quota_reached(want) then return false, 'quota' end
  return true
end

-- The least loaded node that has room, or nil and what they lack. Nodes named in `avoided` come last.
local function choose_node(want, avoided)
  local best, least, bound = nil, nil, 'node'
  for _, node in ipairs(want.nodes) do
    local count = redis.call('SCARD', key('node', node.id)) + (avoided and avoided[node.id] and 1000000 or 0)
    local room, lacking = has_room(node, want)
    if room and (not least or count < least) then best, least = node, count end
    if not room and (lacking == 'starts' or lacking == 'ports' and bound == 'node') then bound = lacking end
  end
  return {best, bound}
end

-- The least loaded node that can take it, or nil and the limit that is reached.
local function room_for(want, avoided)
  local fits, reached = caller_has_room(want)
  if not fits then return nil, reached end
  if want.template_limit > 0 and redis.call('SCARD', key('template', want.template)) >= want.template_limit then
    return nil, 'template'
  end
  if redis.call('SCARD', key('used')) >= want.limit then return nil, 'mesh' end
  local known = want.nodes_key and not want.batch and want.nodes_key .. ' ' .. want.ports
  local choice = known and choices[known] or choose_node(want, avoided)
  if known then choices[known] = choice end
  return choice[1], choice[2]
end

local function has_pooled(want)
  return redis.call('ZCARD', key('pool', want.spec_key)) > 0 and caller_has_room(want)
end
