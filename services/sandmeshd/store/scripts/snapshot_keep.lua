-- Counts a snapshot that was taken, where it fits into the quotas of its owners, whether or not a survey has found it meanwhile. Returns
-- nothing, or {kind, name, in use, limit} of the quota that it does not fit into.
local found = redis.call('HGET', key('snapshots'), args.id)
if found and cjson.decode(found).kept then return {} end
drop_snapshot(args.id)
local reached = holding_reached(owners_of(args.project, args.caller), 'snapshot_bytes', args.bytes)
if reached then return reached end
add_snapshot(args, true)
return {}
