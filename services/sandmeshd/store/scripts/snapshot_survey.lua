-- Corrects what counts as snapshots by what nodes list: `found` on those that `answered`. What was taken within the last minute may be
-- missing in the lists, and what is on nodes that do not answer stays, unless it is known which `nodes` there are and they are not.
local answered, nodes, listed = {}, {}, {}
for _, node in ipairs(args.answered) do answered[node] = true end
for _, node in ipairs(args.nodes) do nodes[node] = true end
for _, one in ipairs(args.found) do
  listed[one.id] = true
  if redis.call('HEXISTS', key('snapshots'), one.id) == 0 then
    add_snapshot(one, false)
  end
end
local counted = redis.call('HGETALL', key('snapshots'))
for index = 1, #counted, 2 do
  local id, snapshot = counted[index], cjson.decode(counted[index + 1])
  local settled = math.abs(now / 1000000 - snapshot.at) > 60
  local missing = not listed[id] and answered[snapshot.node] and settled
  if missing or (#args.nodes > 0 and not nodes[snapshot.node]) then drop_snapshot(id) end
end
return {1}
