-- What the scripts share; put before each of them. KEYS[1] is the mesh's prefix, with its hash tag, ARGV[1] the
-- arguments as JSON, further ARGV bytes. Times are microseconds of the server's clock. A record is the hash
-- sandbox:<id>; the sets and sorted sets beside it are indexes over records.
local prefix = KEYS[1]
local args = cjson.decode(ARGV[1])
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])

local function key(...)
  return prefix .. ':' .. table.concat({...}, ':')
end

-- tostring() would round numbers of this size.
local function text(number)
  return string.format('%.0f', number)
end

local function record(id)
  return key('sandbox', id)
end

local function field(id, name)
  return redis.call('HGET', record(id), name) or nil
end

local function whole(id)
  return redis.call('HGETALL', record(id))
end

local function notify(word)
  redis.call('PUBLISH', key('notices'), word)
end

-- Rises even when the store lost its data, since the clock rises.
local function next_token()
  local last = tonumber(redis.call('GET', key('token')) or '0')
  local token = text(math.max(last + 1, now))
  redis.call('SET', key('token'), token)
  return token
end

local function set_lease(id, holder, token, ttl_us)
  local deadline = text(now + ttl_us)
  redis.call('HSET', record(id), 'holder', holder, 'token', token, 'deadline_us', deadline)
  redis.call('ZADD', key('leases'), deadline, id)
end

local function set_deadline(id, ttl_us)
  local deadline = text(now + ttl_us)
  redis.call('HSET', record(id), 'deadline_us', deadline)
  redis.call('ZADD', key('leases'), deadline, id)
end

-- Capacity: sets of ids, so that counting twice or giving back twice changes nothing.
local function load(id, node, template)
  redis.call('SADD', key('used'), id)
  redis.call('SADD', key('node', node), id)
  redis.call('SADD', key('template', template), id)
end

local function unload(id)
  local found = redis.call('HMGET', record(id), 'node', 'template', 'ports')
  if not found[1] then return end
  redis.call('SREM', key('used'), id)
  redis.call('SREM', key('node', found[1]), id)
  redis.call('SREM', key('template', found[2]), id)
  for port in string.gmatch(found[3] or '', '%d+') do
    if redis.call('HGET', key('ports', found[1]), port) == id then
      redis.call('HDEL', key('ports', found[1]), port)
    end
  end
  redis.call('HSET', record(id), 'ports', '')
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
  -- The next lease goes on from here: a port that was just given back rests as long as can be.
  if count > 0 then
    redis.call('HSET', key('port_cursor'), node.id, text(tonumber(taken[#taken]) - node.first + 1))
  end
  return table.concat(taken, ',')
end

local function has_room(node, want)
  if redis.call('SCARD', key('node', node.id)) >= node.limit then return false end
  if want.ports == 0 then return true end
  local size = node.last > 0 and node.last - node.first + 1 or 0
  return size - redis.call('HLEN', key('ports', node.id)) >= want.ports
end

-- The least loaded node that can take it, or nil.
local function room_for(want)
  if redis.call('SCARD', key('used')) >= want.limit then return nil end
  if want.template_limit > 0 and redis.call('SCARD', key('template', want.template)) >= want.template_limit then
    return nil
  end
  local best, least = nil, nil
  for _, node in ipairs(want.nodes) do
    local count = redis.call('SCARD', key('node', node.id))
    if (not least or count < least) and has_room(node, want) then best, least = node, count end
  end
  return best
end

-- The queue: tickets in order of arrival, what each wants, and when its waiter was last seen.
local function drop_ticket(ticket)
  if redis.call('ZREM', key('queue'), ticket) == 0 then return end
  redis.call('ZREM', key('queue_seen'), ticket)
  redis.call('HDEL', key('queue_wants'), ticket)
end

local function can_serve(want)
  return redis.call('ZCARD', key('pool', want.spec_key)) > 0 or room_for(want) ~= nil
end

-- The first waiting request that could be served now, or nil. Waiters of a dead process are dropped after a while.
local function first_servable()
  local answers, start = {}, 0
  while true do
    local tickets = redis.call('ZRANGE', key('queue'), start, start + 15)
    if #tickets == 0 then return nil end
    for _, ticket in ipairs(tickets) do
      local want = redis.call('HGET', key('queue_wants'), ticket)
      local seen = tonumber(redis.call('ZSCORE', key('queue_seen'), ticket) or '0')
      if not want or seen < now - 5000000 then
        drop_ticket(ticket)
      else
        if answers[want] == nil then answers[want] = can_serve(cjson.decode(want)) end
        if answers[want] then return ticket end
        start = start + 1
      end
    end
  end
end

local function wake_next()
  if redis.call('ZCARD', key('queue')) == 0 then return end
  local ticket = first_servable()
  if ticket then notify(ticket) end
end

local function leave_pool(id)
  local spec_key = field(id, 'spec_key')
  if not spec_key then return end
  redis.call('ZREM', key('pool', spec_key), id)
  redis.call('SREM', key('pooled', spec_key), id)
end

-- Wakes whoever waits for a sandbox that was being created.
local function tell_interested(id)
  for _, ticket in ipairs(redis.call('ZRANGE', key('interest', id), 0, -1)) do notify(ticket) end
  redis.call('DEL', key('interest', id))
end

local function leave_session(id)
  local found = redis.call('HMGET', record(id), 'session', 'slot')
  if found[1] and found[1] ~= '' and redis.call('HGET', key('session', found[1]), found[2]) == id then
    redis.call('HDEL', key('session', found[1]), found[2])
  end
end

-- Records that it is to be deleted; a deletion worker does the rest.
local function stop(id, reason)
  local state = field(id, 'state')
  if not state or state == 'STOPPING' then return end
  redis.call('HSET', record(id), 'state', 'STOPPING', 'reason', reason)
  redis.call('ZREM', key('leases'), id)
  redis.call('SREM', key('starting'), id)
  leave_pool(id)
  leave_session(id)
  redis.call('ZADD', key('stopping'), text(now), id)
  tell_interested(id)
  notify('stopping')
end

local function fail(id, reason, failure)
  redis.call('SREM', key('starting'), id)
  unload(id)
  if field(id, 'holder') == '' then
    stop(id, reason)
  else
    redis.call('HSET', record(id), 'state', 'FAILED', 'reason', reason, 'failure', failure)
    -- Whoever asked may look why for a minute; nobody pays for it.
    set_deadline(id, 60000000)
    tell_interested(id)
  end
  wake_next()
end

local function create(id, want, node, holder, body)
  local token = holder == '' and '0' or next_token()
  redis.call('HSET', record(id), 'id', id, 'state', 'PENDING', 'node', node.id, 'driver', node.driver, 'template', want.template,
    'spec_key', want.spec_key, 'session', holder, 'slot', args.slot or '', 'generation', args.generation,
    'owner', args.owner, 'created_us', text(now), 'ports', '', 'reason', '', 'holder', '', 'token', token,
    'installed', '1', 'body', body)
  redis.call('HSET', record(id), 'ports', take_ports(node, want.ports, id))
  load(id, node.id, want.template)
  redis.call('ZADD', key('ids'), 0, id)
  redis.call('SADD', key('starting'), id)
  return token
end
