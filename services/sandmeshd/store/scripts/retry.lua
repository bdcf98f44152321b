-- STARTING -> PENDING, on another node where one has capacity: the driver of the first failed. Returns {1, record}, or {0}
-- where it had changed, or no node has capacity and it is FAILED by ARGV[2].
local found = redis.call('HMGET', record(args.id), 'state', 'owner', 'session', 'caller', 'project')
if (found[1] ~= 'PENDING' and found[1] ~= 'STARTING') or found[2] ~= args.owner then return {0} end
local avoided = {}
for _, node in ipairs(args.avoided) do avoided[node] = true end
-- It releases its capacity first, so that a mesh that it fills has room for it.
unload(args.id)
args.want.caller, args.want.caller_limit = '', 0
local node = room_for(args.want, avoided)
if not node then
  fail(args.id, args.reason, ARGV[2])
  return {0}
end
redis.call('HINCRBY', record(args.id), 'attempt', 1)
redis.call('HSET', record(args.id), 'node', node.id, 'driver', node.driver, 'ports', take_ports(node, ports_of(node, args.want), args.id))
load(args.id, node.id, args.want.template)
if redis.call('HEXISTS', key('batch_starts'), args.id) == 1 then
  end_batch_start(args.id)
  begin_batch_start(args.id, node.id)
end
if found[3] ~= '' then
  count_in('caller', found[4], args.id)
  count_in('project', found[5] or 'default', args.id)
end
become(args.id, 'PENDING', '')
event(args.id, 'retried', args.reason)
return {1, whole(args.id)}
