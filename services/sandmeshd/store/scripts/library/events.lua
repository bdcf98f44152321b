-- Events of sandboxes, in a stream for each and one for the mesh; both are bounded, and kept after a sandbox's end.
local function append_event_of(id, kind, reason, actor, session, user, project)
  local words = {'sandbox', id, 'kind', kind, 'reason', reason, 'actor', actor, 'session', session, 'user', user,
    'project', project}
  if (args.phases or '') ~= '' then words[#words + 1] = 'phases'; words[#words + 1] = args.phases end
  redis.call('XADD', key('events', id), 'MAXLEN', 200, '*', unpack(words))
  redis.call('XADD', key('events'), 'MAXLEN', '~', 10000, '*', unpack(words))
end

local function append_event(id, kind, reason, actor)
  local found = redis.call('HMGET', record(id), 'session', 'user', 'project')
  append_event_of(id, kind, reason, actor, found[1] or '', found[2] or '', found[3] or '')
end

local function event(id, kind, reason)
  append_event(id, kind, reason or '', args.actor or 'mesh')
end

-- Renewals in a row are one event: they would evict all others.
local function event_once(id, kind, reason)
  local last = redis.call('XREVRANGE', key('events', id), '+', '-', 'COUNT', 1)[1]
  if last and last[2][4] == kind then return end
  event(id, kind, reason)
end
