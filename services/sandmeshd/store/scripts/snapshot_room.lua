-- Whether owners may have one more snapshot, of whatever size. Returns {kind, name, in use, limit} of the first quota that is reached,
-- {''} where there is room, and nothing where nothing is limited.
local owners = owners_of(args.project, args.caller)
local reached = holding_reached(owners, 'snapshot_bytes', 1)
if reached then return reached end
for _, owner in ipairs(owners) do
  if redis.call('HEXISTS', key('quota', owner[1], owner[2]), 'snapshot_bytes') == 1 then return {''} end
end
return {}
