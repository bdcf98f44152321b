-- The state transitions of records; docs/states.md has the table of them.
local function become(id, state, reason)
  redis.call('HSET', record(id), 'state', state, 'reason', reason, 'since_us', text(now))
end

local function set_deadline(id, ttl_us)
  local deadline = text(now + ttl_us)
  redis.call('HSET', record(id), 'deadline_us', deadline, 'ttl_us', text(ttl_us))
  redis.call('ZADD', key('leases'), deadline, id)
end

-- What a lost sandbox left, its container for one, goes then unless its holder renews it, which is every five minutes at most.
local LOST_US = 600000000

local function end_lease_by(id, latest_us)
  if tonumber(field(id, 'deadline_us') or '0') <= latest_us then return end
  redis.call('HSET', record(id), 'deadline_us', text(latest_us))
  redis.call('ZADD', key('leases'), text(latest_us), id)
end

-- Restarts its idle timeout; one that is paused then and is paused already has none.
local function touch(id)
  local found = redis.call('HMGET', record(id), 'idle_us', 'on_idle', 'state')
  if tonumber(found[1] or '0') == 0 then return end
  if found[2] == 'pause' and found[3] == 'PAUSED' then
    redis.call('ZREM', key('idle'), id)
  else
    redis.call('ZADD', key('idle'), text(now + tonumber(found[1])), id)
  end
end

local function leave_pool(id)
  local spec_key = field(id, 'spec_key')
  redis.call('ZREM', key('pool', spec_key), id)
  redis.call('SREM', key('pooled', spec_key), id)
end

local function leave_session(id)
  local found = redis.call('HMGET', record(id), 'session', 'slot')
  if found[1] ~= '' and redis.call('HGET', key('session', found[1]), found[2]) == id then
    redis.call('HDEL', key('session', found[1]), found[2])
  end
end

local function index_labels(id, labels)
  for _, label in ipairs(labels) do redis.call('SADD', key('label', label), id) end
  if #labels > 0 then redis.call('HSET', record(id), 'labels', cjson.encode(labels)) end
end

local function forget_labels(id)
  local labels = field(id, 'labels')
  if not labels then return end
  for _, label in ipairs(cjson.decode(labels)) do redis.call('SREM', key('label', label), id) end
end

-- A lease: holder, token, deadline, whose limits it counts against. `want`, the message and the labels are its claimer's;
-- `installed` is whether its agent knows the token, `metered` whether its time counts from now on.
local function lease(id, token, installed, metered)
  local project, deadline = project_of(args.want.caller), text(now + args.ttl_us)
  redis.call('HSET', record(id), 'session', args.session, 'slot', args.slot, 'caller', args.want.caller, 'project', project, 'user', args.user,
    'session_name', args.session_name, 'holder', args.session, 'workspace', args.workspace, 'token', token, 'idle_us', text(args.idle_us), 'on_idle', args.on_idle,
    'auto_resume', args.auto_resume, 'body', ARGV[2],
    'deadline_us', deadline, 'ttl_us', text(args.ttl_us), 'installed', installed, 'metered_us', metered and text(now) or '0')
  redis.call('ZADD', key('leases'), deadline, id)
  count_in('caller', args.want.caller, id)
  count_in('project', project, id)
  count_create(args.want, id)
  index_labels(id, args.labels)
  redis.call('HSET', key('session', args.session), args.slot, id)
  if metered then metering(id) end
end

-- Notifies all who wait for a sandbox that was being created.
local function notify_waiters(id)
  for _, ticket in ipairs(redis.call('ZRANGE', key('interest', id), 0, -1)) do notify(ticket) end
end

-- Clears the fields of a record that is starting or in use.
local function leave_service(id)
  redis.call('SREM', key('starting'), id)
  end_batch_start(id)
  redis.call('ZREM', key('idle'), id)
  local changing, paused = redis.call('SREM', key('acting'), id), redis.call('ZREM', key('paused'), id)
  if changing + paused > 0 then count_paused(id, false) end
  redis.call('HSET', record(id), 'intent', '')
  notify_waiters(id)
  redis.call('DEL', key('interest', id))
end

-- What was in use has its workspace saved before it is deleted; the next one in its place waits for that.
local function keep_workspace(id)
  local found = redis.call('HMGET', record(id), 'workspace', 'session', 'slot')
  if not found[1] or found[1] == '' then return end
  redis.call('HSET', record(id), 'unsaved', '1')
  redis.call('HSET', key('saving', found[2]), found[3], id)
end

-- Shows in lists that a workspace is being saved: that may take as long as the whole of its life did.
local function note_saving(id)
  local reason, saving = field(id, 'reason') or '', '; its workspace is being saved'
  if string.sub(reason, -#saving) ~= saving then redis.call('HSET', record(id), 'reason', reason .. saving) end
end

-- Its workspace is saved, or gone with its node.
local function forget_workspace(id)
  local found = redis.call('HMGET', record(id), 'session', 'slot', 'workspace')
  if found[1] and redis.call('HGET', key('saving', found[1]), found[2] or '') == id then
    redis.call('HDEL', key('saving', found[1]), found[2])
  end
  local profile = string.match(found[3] or '', '%+(.+)$')
  if profile and redis.call('GET', key('profile', profile)) == id then redis.call('DEL', key('profile', profile)) end
  notify_waiters(id)
  redis.call('DEL', key('interest', id))
end

-- Marks it for deletion; a deletion worker does the rest.
local function stop(id, reason)
  local state = field(id, 'state')
  if not state or state == 'STOPPING' then return false end
  if state == 'READY' or state == 'PAUSED' then keep_workspace(id) end
  leave_service(id)
  meter_end(id, tonumber(field(id, 'deadline_us') or now))
  become(id, 'STOPPING', reason)
  redis.call('ZREM', key('leases'), id)
  leave_pool(id)
  leave_session(id)
  count_ending(id)
  redis.call('ZADD', key('stopping'), text(now), id)
  event(id, 'stopping', reason)
  notify('stopping')
  return true
end

-- The requester can read the reason for a minute; it counts against no limit, and its slot in the session is free.
local function fail(id, reason, failure)
  if field(id, 'holder') == '' then
    event(id, 'failed', reason)
    unload(id)
    stop(id, reason)
  else
    unload(id)
    leave_service(id)
    leave_session(id)
    become(id, 'FAILED', reason)
    redis.call('HSET', record(id), 'failure', failure)
    set_deadline(id, 60000000)
    event(id, 'failed', reason)
  end
  wake_next()
end

-- It ended unexpectedly. A leased one keeps its place, so that its holder learns why; an unused one is deleted.
local function lose(id, reason)
  -- When it ended is known to a minute where it was not observed.
  meter_end(id, tonumber(field(id, 'metered_us') or '0') + CRASH_US)
  cost_end(id)
  unload(id)
  event(id, 'lost', reason)
  if field(id, 'holder') == '' then
    stop(id, reason)
    notify('pool')
  else
    leave_service(id)
    become(id, 'LOST', reason)
    end_lease_by(id, now + LOST_US)
  end
  wake_next()
end

local function create(id, want, node)
  redis.call('HSET', record(id), 'id', id, 'node', node.id, 'driver', node.driver, 'template', want.template,
    'spec_key', want.spec_key, 'session', '', 'slot', '', 'caller', '', 'project', '', 'user', '', 'session_name', '', 'holder', '', 'workspace', '',
    'token', '0', 'generation', args.generation, 'owner', args.owner, 'created_us', text(now), 'idle_us', '0', 'on_idle', '', 'auto_resume', '',
    'installed', '1', 'intent', '', 'ended', '', 'attempt', '1', 'body', ARGV[2], 'memory_bytes', text(want.memory_bytes),
    'cpu_millis', text(want.cpu_millis))
  become(id, 'PENDING', '')
  redis.call('HSET', record(id), 'ports', take_ports(node, ports_of(node, want), id))
  load(id, node.id, want.template)
  redis.call('ZADD', key('ids'), 0, id)
  redis.call('SADD', key('starting'), id)
end
