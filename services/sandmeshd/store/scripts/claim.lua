-- Claims a sandbox for a session's slot. Returns {kind, record...}:
-- kept: it has one, its lease is renewed; pooled: it gets one from the pool; create: a new record is PENDING, the
-- caller creates it; wait: one is being created; profile: another sandbox has the browser's profile; failed: the one
-- that was waited for failed; queued: there is no room, and the limit that is reached; quota: a quota is reached, and
-- what it counts; widen: the nodes that it names have no room, and it names a part of them; left: the client had
-- disconnected.
local id = redis.call('HGET', key('session', args.session), args.slot) or nil
-- A client that disconnected may still have this script in progress on another connection.
if redis.call('EXISTS', key('left', args.ticket)) == 1 then return {'left'} end
if args.waited ~= '' and field(args.waited, 'state') == 'FAILED' then
  drop_ticket(args.ticket)
  return {'failed', whole(args.waited)}
end

-- The creator's own interest does not age: the sweep finds out when its process is dead.
local function create_here(taken)
  redis.call('ZADD', key('interest', taken), '9e15', args.ticket)
  return {'create', whole(taken)}
end

-- The workspace of the one before is still being saved: the next begins with it.
local saving = not id and redis.call('HGET', key('saving', args.session), args.slot)
if saving and field(saving, 'state') == 'STOPPING' then
  redis.call('ZADD', key('interest', saving), text(now), args.ticket)
  return {'wait', whole(saving)}
end

-- Of the sandboxes with a profile one may run at a time.
local holder = not id and args.profile ~= '' and redis.call('GET', key('profile', args.profile))
if holder and holder ~= args.sandbox_id then
  local state = field(holder, 'state')
  if state == 'STOPPING' then
    redis.call('ZADD', key('interest', holder), text(now), args.ticket)
    return {'wait', whole(holder)}
  end
  if state and state ~= 'GONE' and state ~= 'FAILED' and state ~= 'LOST' then
    drop_ticket(args.ticket)
    return {'profile', whole(holder)}
  end
end

if id then
  local state = field(id, 'state')
  if state == 'READY' or state == 'PAUSED' then
    drop_ticket(args.ticket)
    set_deadline(id, args.ttl_us)
    redis.call('HSET', record(id), 'idle_us', text(args.idle_us), 'on_idle', args.on_idle, 'auto_resume', args.auto_resume)
    if args.idle_us == 0 then redis.call('ZREM', key('idle'), id) end
    touch(id)
    return {'kept', whole(id)}
  end
  if state == 'PENDING' or state == 'STARTING' then
    if id == args.sandbox_id then return create_here(id) end
    if not is_alive(field(id, 'owner'), args.grace_us) then
      -- Its creator died: drivers answer a repeated create with the same sandbox.
      redis.call('HSET', record(id), 'owner', args.owner)
      become(id, 'PENDING', '')
      event(id, 'retried', 'the allocator that started it ended')
      return create_here(id)
    end
    redis.call('ZADD', key('interest', id), text(now), args.ticket)
    return {'wait', whole(id)}
  end
  stop(id, 'replaced by a new one in its slot')
end

local capped = cost_reached(args.cost_limit)
if capped then
  drop_ticket(args.ticket)
  wake_next()
  return {'quota', unpack(capped)}
end

-- What is being deleted ends by itself, and is waited for as for room.
local reached = quota_reached(args.want)
if reached and not quota_frees(args.want, reached) then
  drop_ticket(args.ticket)
  wake_next()
  return {'quota', unpack(reached)}
end

-- Claims outside batches go ahead of all batches.
local of_caller, queued = not args.want.batch, nil
if of_caller then queued = caller_waits() else queued = redis.call('ZCARD', key('queue_seen')) > 0 end
local function leave_queue()
  if not queued then return end
  drop_ticket(args.ticket, true)
  wake_next()
end

local function take_pooled()
  local taken = redis.call('ZPOPMIN', key('pool', args.want.spec_key))[1]
  redis.call('SREM', key('pooled', args.want.spec_key), taken)
  lease(taken, next_token(), '0', true)
  if args.idle_us > 0 then touch(taken) end
  append_event_of(taken, 'leased', 'from the pool', args.actor, args.session, args.user, project_of(args.want.caller))
  leave_queue()
  return {'pooled', whole(taken)}
end

local function create_new(node)
  -- An id is used once, also where this is sent again after its sandbox was given back.
  if existed(args.sandbox_id) then return {'left'} end
  create(args.sandbox_id, args.want, node)
  lease(args.sandbox_id, next_token(), '1', false)
  if args.want.batch then begin_batch_start(args.sandbox_id, node.id) end
  if args.profile ~= '' then redis.call('SET', key('profile', args.profile), args.sandbox_id) end
  append_event_of(args.sandbox_id, 'created', '', args.actor, args.session, args.user, project_of(args.want.caller))
  leave_queue()
  return create_here(args.sandbox_id)
end

-- A full mesh with unused sandboxes of other kinds makes room: one for each that waits, and for batches one at a time.
local function make_room()
  local most = of_caller and redis.call('ZCARD', key('queue_seen')) or 1
  if redis.call('ZCARD', key('stopping')) >= most then return end
  for _, spec_key in ipairs(redis.call('HKEYS', key('pools'))) do
    local unused = redis.call('ZRANGE', key('pool', spec_key), 0, 0)
    if unused[1] then return stop(unused[1], 'made room for a waiting request') end
  end
end

local function enqueue()
  add_ticket(args.ticket, args.want)
  local node, bound = room_for(args.want)
  if node then
    wake_next()
    bound = 'turn'
  elseif bound == 'mesh' or bound == 'node' or bound == 'ports' then
    make_room()
  end
  return {'queued', bound, unpack(reached or {})}
end

-- What is reached whatever the node.
local NOT_OF_NODES = {mesh = true, caller = true, template = true, quota = true}
-- What it waits for since an earlier try, which may have named all nodes where this one names a few.
local waiting = args.want.partial and redis.call('HGET', key('queue_wants'), args.ticket)
local function wide_want()
  local want = waiting and want_of(waiting)
  return want and not want.partial and want
end

local turn, lacks_nodes = true, false
if queued then
  if redis.call('ZSCORE', key('queue_seen'), args.ticket) then
    redis.call('ZADD', key('queue_seen'), text(now), args.ticket)
  end
  local first = first_servable(of_caller)
  turn = first == nil or first == args.ticket
end
if turn then
  local node, pooled, bound = source_of(args.want)
  if pooled then return take_pooled() end
  lacks_nodes = not node and (args.want.batch or not NOT_OF_NODES[bound])
  local wide = lacks_nodes and wide_want()
  if wide then node, lacks_nodes = room_for(wide), false end
  if node then return create_new(node) end
end
-- It waits for a node only once none at all has room; what else it waits for is the same on all.
if args.want.partial and (lacks_nodes or not turn and not waiting) then return {'widen'} end
return enqueue()
