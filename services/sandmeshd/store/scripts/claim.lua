-- Gives a session's slot a sandbox. Answers {kind, record...}:
-- kept: it has one, its lease is renewed; pooled: one from the pool is now its; create: a new record is PENDING, the
-- caller creates it; wait: one is being created; failed: the one that was waited for failed; queued: there is no room.
local id = redis.call('HGET', key('session', args.session), args.slot) or nil
-- A caller that went away may still have this script under way on another connection.
if redis.call('EXISTS', key('left', args.ticket)) == 1 then return {'left'} end

if id then
  local state = field(id, 'state')
  if state == 'READY' or state == 'PAUSED' then
    drop_ticket(args.ticket)
    set_deadline(id, args.ttl_us)
    return {'kept', whole(id)}
  end
  if state == 'PENDING' or state == 'STARTING' then
    if id == args.sandbox_id then return {'create', whole(id)} end
    redis.call('ZADD', key('interest', id), text(now), args.ticket)
    return {'wait', whole(id)}
  end
  if state == 'FAILED' and id == args.waited then return {'failed', whole(id)} end
  stop(id, 'replaced by a new one in its slot')
end

local function take_slot(taken)
  redis.call('HSET', key('session', args.session), args.slot, taken)
  drop_ticket(args.ticket)
  wake_next()
end

local function take_pooled()
  local popped = redis.call('ZPOPMIN', key('pool', args.want.spec_key))
  local taken = popped[1]
  redis.call('SREM', key('pooled', args.want.spec_key), taken)
  redis.call('HSET', record(taken), 'session', args.session, 'slot', args.slot, 'installed', '0', 'body', ARGV[2])
  set_lease(taken, args.session, next_token(), args.ttl_us)
  take_slot(taken)
  notify('pool')
  return {'pooled', whole(taken)}
end

local function create_new(node)
  local token = create(args.sandbox_id, args.want, node, args.session, ARGV[2])
  set_lease(args.sandbox_id, args.session, token, args.ttl_us)
  -- The creator's own interest does not age: the sweep finds out when its process is dead.
  redis.call('ZADD', key('interest', args.sandbox_id), '9e15', args.ticket)
  take_slot(args.sandbox_id)
  return {'create', whole(args.sandbox_id)}
end

-- A full mesh with unused sandboxes of other kinds makes room: one for each that waits.
local function make_room()
  if redis.call('ZCARD', key('stopping')) >= redis.call('ZCARD', key('queue')) then return end
  for _, spec_key in ipairs(redis.call('HKEYS', key('pools'))) do
    local unused = redis.call('ZRANGE', key('pool', spec_key), 0, 0)
    if unused[1] then return stop(unused[1], 'made room for a waiting request') end
  end
end

local function enqueue()
  if not redis.call('ZSCORE', key('queue'), args.ticket) then
    redis.call('ZADD', key('queue'), redis.call('INCR', key('queue_sequence')), args.ticket)
    redis.call('HSET', key('queue_wants'), args.ticket, cjson.encode(args.want))
  end
  redis.call('ZADD', key('queue_seen'), text(now), args.ticket)
  local node = room_for(args.want)
  if node then wake_next() else make_room() end
  local soonest = redis.call('ZRANGE', key('leases'), 0, 0, 'WITHSCORES')
  return {'queued', redis.call('SCARD', key('used')), soonest[2] or '0'}
end

local turn = true
if redis.call('ZCARD', key('queue')) > 0 then
  if redis.call('ZSCORE', key('queue'), args.ticket) then
    redis.call('ZADD', key('queue_seen'), text(now), args.ticket)
  end
  local first = first_servable()
  turn = first == nil or first == args.ticket
end
if turn then
  if redis.call('ZCARD', key('pool', args.want.spec_key)) > 0 then return take_pooled() end
  local node = room_for(args.want)
  if node then return create_new(node) end
end
return enqueue()
