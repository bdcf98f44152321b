-- A leased port is in use by others: its lease ends, it is withheld for a while, and the STARTING sandbox gets the next
-- one. Returns {1, record}, or {0} where the record had changed, or the node has no other port.
local found = redis.call('HMGET', record(args.id), 'state', 'owner', 'node', 'ports')
if found[1] ~= 'STARTING' or found[2] ~= args.owner or found[3] ~= args.node.id then return {0} end
if redis.call('HGET', key('ports', args.node.id), args.port) ~= args.id then return {0} end
forget_clashes(args.node)
redis.call('HSET', key('ports', args.node.id), args.port, '')
redis.call('ZADD', key('clashes', args.node.id), text(now + args.rest_us), args.port)
local kept, taken = {}, take_ports(args.node, 1, args.id)
if taken ~= '' then kept[1] = taken end
for port in string.gmatch(found[4], '%d+') do
  if port ~= args.port then kept[#kept + 1] = port end
end
redis.call('HSET', record(args.id), 'ports', table.concat(kept, ','), 'ended', '')
if taken == '' then return {0} end
event(args.id, 'retried', 'port ' .. args.port .. ' is not free')
return {1, whole(args.id)}
