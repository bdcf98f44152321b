-- The queue: tickets in lines, and lines in two classes, in which those of batches come after all others. A line is a caller's tickets of
-- one class; `turns` has the lines in the order in which they are served next, so that one with many tickets waits as long as one with
-- few. In a caller's line of batches the tickets are in order of their jobs' turns, of which a job with the share 3 gets 3 for 1.
local BATCHES = 1000000000000
-- How many tickets of a line of batches are looked at: most are alike.
local BATCH_TICKETS = 64

local function next_turn()
  return redis.call('INCR', key('queue_sequence'))
end

local function line_of(want)
  return (want.batch and 'batch:' or 'caller:') .. want.caller
end

local function next_line_turn(line)
  return next_turn() + (string.sub(line, 1, 6) == 'batch:' and BATCHES or 0)
end

-- Whether a request waits that is not of a batch.
local function caller_waits()
  return redis.call('ZCOUNT', key('turns'), '-inf', '(' .. text(BATCHES)) > 0
end

local function next_job_turn(line, batch)
  local first = redis.call('ZRANGE', key('queue', line), 0, 0, 'WITHSCORES')
  local last = redis.call('HGET', key('job_turns', line), batch.job) or '0'
  local turn = string.format('%.6f', math.max(tonumber(first[2] or '0'), tonumber(last)) + 1 / batch.share)
  redis.call('HSET', key('job_turns', line), batch.job, turn)
  return turn
end

local function drop_ticket(ticket, served)
  local line = redis.call('HGET', key('queue_lines'), ticket)
  if not line then return end
  redis.call('HDEL', key('queue_lines'), ticket)
  redis.call('HDEL', key('queue_wants'), ticket)
  redis.call('ZREM', key('queue_seen'), ticket)
  redis.call('ZREM', key('queue', line), ticket)
  if redis.call('ZCARD', key('queue', line)) == 0 then
    redis.call('ZREM', key('turns'), line)
    redis.call('DEL', key('job_turns', line))
  elseif served then
    redis.call('ZADD', key('turns'), text(next_line_turn(line)), line)
  end
  if redis.call('ZCARD', key('queue_seen')) == 0 then
    redis.call('DEL', key('queue_sequence'), key('queue_limit'), key('queue_nodes'))
  end
end

-- The list of many nodes is there once for all waiters: `queue_nodes` has it by its hash.
local FEW_NODES = 16
local function with_shared_nodes(want)
  if want.partial or #want.nodes <= FEW_NODES then return want end
  local copy, nodes = {}, cjson.encode(want.nodes)
  for name, value in pairs(want) do copy[name] = value end
  copy.nodes, copy.nodes_key = {}, redis.sha1hex(nodes)
  redis.call('HSET', key('queue_nodes'), copy.nodes_key, nodes)
  return copy
end

local node_lists = {}
local function want_of(text_of_want)
  local want = cjson.decode(text_of_want)
  local shared = want.nodes_key
  if not shared then return want end
  node_lists[shared] = node_lists[shared] or cjson.decode(redis.call('HGET', key('queue_nodes'), shared))
  want.nodes = node_lists[shared]
  return want
end

local function add_ticket(ticket, want)
  local line = line_of(want)
  if redis.call('HSETNX', key('queue_lines'), ticket, line) == 1 then
    local turn = want.batch and next_job_turn(line, want.batch) or text(next_turn())
    redis.call('ZADD', key('queue', line), turn, ticket)
    if not redis.call('ZSCORE', key('turns'), line) then
      redis.call('ZADD', key('turns'), text(next_line_turn(line)), line)
    end
  end
  -- One that waits for any of many nodes looks at a few of them when it asks again.
  if not want.partial or redis.call('HEXISTS', key('queue_wants'), ticket) == 0 then
    redis.call('HSET', key('queue_wants'), ticket, cjson.encode(with_shared_nodes(want)))
  end
  redis.call('ZADD', key('queue_seen'), text(now), ticket)
  redis.call('SET', key('queue_limit'), text(want.limit))
end

-- Waiters of a dead process are dropped after a while.
local function drop_unseen()
  for _, ticket in ipairs(redis.call('ZRANGEBYSCORE', key('queue_seen'), '-inf', text(now - 5000000), 'LIMIT', 0, 100)) do
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

-- The node for a new sandbox, or nil; then whether one from a pool serves the request instead, and the limit that is reached. Batches
-- leave the pools to others as long as they find room beside them.
local function source_of(want)
  if not want.batch and has_pooled(want) then return nil, true end
  local node, bound = room_for(want)
  return node, not node and bound ~= 'starts' and has_pooled(want), bound
end

local function is_servable(want)
  local node, pooled = source_of(want)
  return node ~= nil or pooled
end

-- The waiting request whose turn it is among those that could be served now, or nil; `of_callers`: only of those that are of no batch.
local function first_servable(of_callers)
  drop_unseen()
  if redis.call('ZCARD', key('queue_seen')) == 0 or is_full() then return nil end
  local answers = {}
  local last = of_callers and '(' .. text(BATCHES) or '+inf'
  for _, line in ipairs(redis.call('ZRANGEBYSCORE', key('turns'), '-inf', last)) do
    local in_batch = string.sub(line, 1, 6) == 'batch:'
    for _, ticket in ipairs(redis.call('ZRANGE', key('queue', line), 0, in_batch and BATCH_TICKETS - 1 or -1)) do
      local wanted = redis.call('HGET', key('queue_wants'), ticket)
      if answers[wanted] == nil then answers[wanted] = is_servable(want_of(wanted)) end
      if answers[wanted] then return ticket end
    end
  end
  return nil
end

local function wake_next()
  if redis.call('ZCARD', key('queue_seen')) == 0 then return end
  local ticket = first_servable()
  if ticket then notify(ticket) end
end

-- Whether a request waits for room, and not only for its batch's turn to start.
local function lacks_room()
  local lines = redis.call('ZRANGE', key('turns'), 0, 0)
  if not lines[1] then return false end
  local ticket = redis.call('ZRANGE', key('queue', lines[1]), 0, 0)[1]
  local want = want_of(redis.call('HGET', key('queue_wants'), ticket))
  if not want.batch then return true end
  want.batch = nil
  return room_for(want) == nil
end

-- A batch's start counts on its node until the sandbox is ready or has failed.
local function end_batch_start(id)
  local node = redis.call('HGET', key('batch_starts'), id)
  if not node then return end
  redis.call('HDEL', key('batch_starts'), id)
  redis.call('SREM', key('batch_starting', node), id)
  wake_next()
end

local function begin_batch_start(id, node)
  redis.call('HSET', key('batch_starts'), id, node)
  redis.call('SADD', key('batch_starting', node), id)
end
