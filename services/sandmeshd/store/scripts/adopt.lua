-- Rebuilds the record of a sandbox that its runtime has and the store lost; `record` has the fields, ARGV[2] how to
-- reach it, ARGV[3] its message. Returns {kind}: adopted; known where it has a record; deleted where it was deleted;
-- taken where its slot or one of its ports belongs to another by now.
local made = args.record
if redis.call('EXISTS', record(made.id)) == 1 then return {'known'} end
if redis.call('EXISTS', key('tomb', made.id)) == 1 then return {'deleted'} end
if redis.call('HEXISTS', key('session', made.session), made.slot) == 1 then return {'taken'} end
for port in string.gmatch(made.ports, '%d+') do
  if redis.call('HEXISTS', key('ports', made.node), port) == 1 then return {'taken'} end
end
if made.project == '' then made.project = project_of(made.caller) end
for name, value in pairs(made) do redis.call('HSET', record(made.id), name, value) end
redis.call('HSET', record(made.id), 'holder', made.session, 'generation', args.generation, 'owner', args.owner, 'intent', '',
  'installed', '1', 'attempt', '1', 'access', ARGV[2], 'body', ARGV[3])
become(made.id, args.state, '')
if args.state == 'PAUSED' then redis.call('ZADD', key('paused'), text(now), made.id) end
meter_start(made.id)
cost_start(made.id, args.price)
load(made.id, made.node, made.template)
count_in('caller', made.caller, made.id)
count_in('project', made.project, made.id)
if args.state == 'PAUSED' then count_paused(made.id, true) end
for port in string.gmatch(made.ports, '%d+') do redis.call('HSET', key('ports', made.node), port, made.id) end
redis.call('ZADD', key('ids'), 0, made.id)
redis.call('HSET', key('session', made.session), made.slot, made.id)
local profile = string.match(made.workspace or '', '%+(.+)$')
if profile then redis.call('SET', key('profile', profile), made.id) end
index_labels(made.id, args.labels)
-- Renewals are not in the labels: a living holder renews it within one more time to live.
set_deadline(made.id, tonumber(made.ttl_us))
touch(made.id)
local last = tonumber(redis.call('GET', key('token')) or '0')
if tonumber(made.token) > last then redis.call('SET', key('token'), made.token) end
local session = key('user_session', made.session)
redis.call('HSETNX', session, 'created_us', made.created_us)
redis.call('HSET', session, 'user', made.user, 'name', made.session_name)
redis.call('EXPIRE', session, args.keep_seconds)
redis.call('ZADD', key('user', args.user_key), 0, made.session)
redis.call('EXPIRE', key('user', args.user_key), args.keep_seconds)
event(made.id, 'adopted', 'its record was lost with the store')
return {'adopted'}
